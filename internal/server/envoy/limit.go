package envoy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
)

// DefaultAlgorithm is the algorithm of limits that name none. Like in envoyproxy/ratelimit, windows begin at multiples
// of the unit. A sliding window would refuse a steady caller at exactly a small limit (half of 1/s, a tenth of 10/s),
// and its worst case is the same: nearly twice the limit.
const DefaultAlgorithm = "fixed-window"

// algorithms are the algorithms that need no parameters but a number of requests and a period.
var algorithms = map[string]bool{
	"sliding-window": true, "fixed-window": true, "sliding-log": true, "token-bucket": true, "gcra": true,
	"leaky-bucket": true,
}

const algorithmNames = "sliding-window, fixed-window, sliding-log, token-bucket, gcra and leaky-bucket"

type unit struct {
	enum    rls.RateLimitResponse_RateLimit_Unit
	seconds int64
}

// units are the units by name. A month has 30 days and a year 365, as in envoyproxy/ratelimit; a limit by calendar
// months needs a notation.
var units = map[string]unit{
	"second": {rls.RateLimitResponse_RateLimit_SECOND, 1},
	"minute": {rls.RateLimitResponse_RateLimit_MINUTE, 60},
	"hour":   {rls.RateLimitResponse_RateLimit_HOUR, 3600},
	"day":    {rls.RateLimitResponse_RateLimit_DAY, 86400},
	"week":   {rls.RateLimitResponse_RateLimit_WEEK, 7 * 86400},
	"month":  {rls.RateLimitResponse_RateLimit_MONTH, 30 * 86400},
	"year":   {rls.RateLimitResponse_RateLimit_YEAR, 365 * 86400},
}

// unitNames are the names by the unit's number in protobuf, which is the same in all messages.
var unitNames = func() map[int32]string {
	names := map[int32]string{}
	for name, u := range units {
		names[int32(u.enum)] = name
	}
	return names
}()

// toNotation writes a policy as a notation. algorithm is for a policy that names none.
func (p *policy) toNotation(algorithm string) (string, error) {
	if p.algorithm != "" {
		if algorithm = p.algorithm; !algorithms[algorithm] {
			return "", p.at.Wrong("algorithm: %.100q is not one of %s", algorithm, algorithmNames)
		}
	}
	if p.unit == "" {
		return "", p.at.Wrong("unit: is missing; there are second, minute, hour, day, week, month and year")
	}
	u, ok := units[strings.ToLower(p.unit)]
	if !ok {
		return "", p.at.Wrong("unit: %.100q is not one of second, minute, hour, day, week, month and year", p.unit)
	}
	return notation(algorithm, p.requests, u, p.multiplier), nil
}

// notation writes a number of requests in a number of units as a notation. 0 requests refuse everything.
func notation(algorithm string, requests uint32, u unit, multiplier uint32) string {
	if requests == 0 {
		return "0"
	}
	return fmt.Sprintf("%s %d/%ds", algorithm, requests, u.seconds*int64(max(multiplier, 1)))
}

// multiplierOf returns a multiplier for an answer, or nil if it is 1.
func multiplierOf(n uint32) *wrapperspb.UInt32Value {
	if n <= 1 {
		return nil
	}
	return wrapperspb.UInt32(n)
}

// currentLimitOf describes a limit in the longest unit that fits its period. A limit without a period, or with one that
// is not whole seconds, is described by its capacity without a unit.
func currentLimitOf(l headgate.Limit) *rls.RateLimitResponse_RateLimit {
	p := l.Params()
	current := &rls.RateLimitResponse_RateLimit{}
	if p.Unit > 0 {
		current.RequestsPerUnit = clamp(p.Capacity / p.Unit)
	}
	words := strings.Fields(l.String())
	if len(words) < 2 {
		return current
	}
	amount, period, ok := strings.Cut(words[1], "/")
	if !ok {
		return current
	}
	if u, calendar := units[period]; calendar {
		current.Unit = u.enum
	} else if d, err := headgate.ParsePeriod(period); err == nil && d%time.Second == 0 {
		seconds := int64(d / time.Second)
		for _, name := range []string{"second", "minute", "hour", "day", "week"} {
			if u := units[name]; seconds%u.seconds == 0 {
				current.Unit, current.UnitMultiplier = u.enum, multiplierOf(uint32(seconds/u.seconds))
			}
		}
	} else {
		return current
	}
	whole, _, _ := strings.Cut(amount, ".")
	n, _ := strconv.ParseInt(whole, 10, 64) // the largest number if it is out of range
	current.RequestsPerUnit = clamp(n)
	return current
}

// clamp limits a number to the range of 32 bits.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }
