package forwardauth

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/api"
)

// maxCharges is how many charges a query may have. A proxy's configuration has a few; the memory of one request must
// stay small, since proxies send one for each request of their users.
const maxCharges = 64

// CountCharges returns how many charges a query has, or a few more, and at most maxCharges. It does not parse it.
func CountCharges(raw string) int { return min(strings.Count(raw, "limit="), maxCharges) }

type query struct {
	charges       []api.Charge
	ipBits        []int // for each charge: the key is the client's network of that length; 0: the key is in charges
	refusalStatus int   // the status of a refusal
}

// parseQuery parses the query of a URL, such as limit=api&key=alice&cost=2. The order counts: each limit starts a
// charge, and the parameters after it belong to that charge. An unknown parameter is an error, since a misspelt cost
// would charge something else than the user wanted.
func parseQuery(raw string) (query, error) {
	q := query{}
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		text, err := url.QueryUnescape(value)
		if err != nil {
			return q, headgate.Invalid("query", "%.100q is not escaped as a URL is", pair)
		}
		if err := q.setParameter(name, text); err != nil {
			return q, err
		}
	}
	for i := range q.charges {
		if c := &q.charges[i]; c.NoKey && q.ipBits[i] == 0 {
			return q, headgate.Invalid("key", "of limit %.100q is missing: say key=, which may be empty, or by=ip",
				c.Limit)
		}
	}
	q.refusalStatus = cmp.Or(q.refusalStatus, http.StatusTooManyRequests)
	return q, nil
}

var refusalStatuses = map[string]int{
	"401": http.StatusUnauthorized, "403": http.StatusForbidden, "429": http.StatusTooManyRequests,
}

func (q *query) setParameter(name, value string) error {
	switch name {
	case "deny":
		if q.refusalStatus != 0 {
			return headgate.Invalid("deny", "is said twice")
		}
		if q.refusalStatus = refusalStatuses[value]; q.refusalStatus == 0 {
			return headgate.Invalid("deny", "%.20q is not 401, 403 or 429", value)
		}
		return nil
	case "limit":
		if len(q.charges) == maxCharges {
			return headgate.Invalid("limit", "stands more than %d times", maxCharges)
		}
		if value == "" {
			return headgate.Invalid("limit", "is empty")
		}
		q.charges, q.ipBits = append(q.charges, api.Charge{Limit: value, NoKey: true}), append(q.ipBits, 0)
		return nil
	}
	return q.setOfLastCharge(name, value)
}

// setOfLastCharge sets a parameter of the last charge.
func (q *query) setOfLastCharge(name, value string) error {
	switch name {
	case "key", "by", "cost", "keep":
	default:
		return headgate.Invalid("query", "%.100q is not known; known are limit, key, by, cost, keep and deny", name)
	}
	last := len(q.charges) - 1
	if last < 0 {
		return headgate.Invalid(name, "stands before the limit that it belongs to")
	}
	c, ipBits := &q.charges[last], &q.ipBits[last]
	var twice, empty bool
	switch name {
	case "key":
		twice = !c.NoKey || *ipBits != 0
		c.Key, c.NoKey = value, false
	case "by":
		bits, ok, err := httpkey.ParseIP(value)
		if err != nil {
			return headgate.Invalid("by", "%v", err)
		}
		if !ok {
			return headgate.Invalid("by", "%.20q is neither ip nor ip/BITS, such as ip/56", value)
		}
		twice = !c.NoKey || *ipBits != 0
		*ipBits = bits
	case "cost":
		twice, empty = c.Cost != "", value == ""
		c.Cost = json.Number(value)
	case "keep":
		twice, empty = c.Keep != "", value == ""
		c.Keep = value
	}
	switch {
	case twice:
		return headgate.Invalid(name, "is said twice of limit %.100q", c.Limit)
	case empty:
		return headgate.Invalid(name, "is empty")
	}
	return nil
}
