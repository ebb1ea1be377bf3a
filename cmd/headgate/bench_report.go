package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/load"
)

// benchReport has the results of a bench. Amounts are sums of costs.
type benchReport struct {
	Rate     float64 `json:"decisions_per_s"`
	Admitted amount  `json:"admitted"`
	Refused  int64   `json:"refused"` // number of refused calls
	Errors   int64   `json:"errors"`
	Bound    amount  `json:"bound"` // the sum over the keys
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`

	over     amount // what was admitted beyond the bounds of the keys
	overKeys int
	firstErr error
	load     load.Result
}

// report returns the results of the bench, with an audit of what was admitted.
func (b *bench) report(result load.Result) *benchReport {
	var sum auditSums
	r := &benchReport{
		Rate: math.Round(result.PerSecond()*10) / 10, Errors: b.errors.Load(), firstErr: b.firstErr, load: result,
		P50: toMicros(result.Quantile(0.5)), P99: toMicros(result.Quantile(0.99)),
	}
	for i, tallies := range b.tallies {
		for k := range tallies {
			b.audit(&tallies[k], b.limits[i].limit, &sum, r)
		}
	}
	for i := range b.refused {
		r.Refused += b.refused[i].n
	}
	r.Admitted, r.Bound = b.totalCost(&sum.admitted, &sum.settled), costOfCharges(&sum.bound, b.cost)
	return r
}

// auditSums has sums over all keys, as numbers of charges.
type auditSums struct{ admitted, settled, bound big.Int }

// audit compares a key's admitted charges with the most that its limit lets pass. It adds both to sum, an excess to r.
func (b *bench) audit(k *keyTally, limit headgate.Limit, sum *auditSums, r *benchReport) {
	admitted, settled := big.NewInt(k.admitted.Load()), big.NewInt(k.settled.Load())
	if admitted.Sign() == 0 {
		return
	}
	within, err := limit.Within(time.UnixMicro(k.from.Load()), time.UnixMicro(k.to.Load()), b.cost)
	if err != nil {
		panic(err) // newBench tried this cost
	}
	maxAdmitted := big.NewInt(within)
	sum.admitted.Add(&sum.admitted, admitted)
	sum.settled.Add(&sum.settled, settled)
	sum.bound.Add(&sum.bound, maxAdmitted)
	if admitted.Cmp(maxAdmitted) <= 0 {
		return
	}
	over, bound := b.totalCost(admitted, settled), costOfCharges(maxAdmitted, b.cost)
	if over.Sub(&over.Rat, &bound.Rat); over.Sign() > 0 {
		r.over.Add(&r.over.Rat, &over.Rat)
		r.overKeys++
	}
}

// totalCost returns the cost of a number of charges, some of which were settled.
func (b *bench) totalCost(charges, settled *big.Int) amount {
	if b.settle == nil {
		return costOfCharges(charges, b.cost)
	}
	total, actual := costOfCharges(new(big.Int).Sub(charges, settled), b.cost), costOfCharges(settled, *b.settle)
	total.Add(&total.Rat, &actual.Rat)
	return total
}

func toMicros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (r *benchReport) print(w io.Writer, limits []keyedLimit, store string) error {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("store", "%s", store)
	for _, l := range limits {
		line("limit", "%s, %s keys", l.limit, accesslog.Comma(int64(l.keys)))
	}
	line("decisions", "%s/s for %s", accesslog.GroupThousands(strconv.FormatFloat(r.Rate, 'f', 0, 64)),
		r.load.Elapsed.Round(time.Millisecond))
	line("admitted", "%s", r.auditResult())
	if r.Refused > 0 {
		line("refused", "%s", accesslog.Comma(r.Refused))
	} else {
		line("refused", "0: no key came to its limit")
	}
	line("errors", "%s", accesslog.Comma(r.Errors))
	if r.firstErr != nil {
		line("", "first: %v", r.firstErr)
	}
	q := func(quantile float64) time.Duration { return roundToThreeDigits(r.load.Quantile(quantile)) }
	line("latency", "p50 %s  p90 %s  p99 %s  p99.9 %s  max %s", q(0.5), q(0.9), q(0.99), q(0.999), q(1))
	_, err := io.WriteString(w, b.String())
	return err
}

// printJSON prints the report for programs, and to stderr an overrun and the first error.
func (r *benchReport) printJSON(w, stderr io.Writer) error {
	if r.over.Sign() > 0 {
		fmt.Fprintf(stderr, "headgate bench: admitted %s\n", r.auditResult())
	}
	if r.firstErr != nil {
		fmt.Fprintf(stderr, "headgate bench: errors: %d, first: %v\n", r.Errors, r.firstErr)
	}
	return printJSON(w, r)
}

func (r *benchReport) auditResult() string {
	s := r.Admitted.grouped() + " of " + r.Bound.grouped() + " allowed: "
	if r.over.Sign() > 0 {
		return fmt.Sprintf("%sOVER by %s, on %d of the keys", s, r.over.grouped(), r.overKeys)
	}
	return s + "exact"
}

func roundToThreeDigits(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}

// amount is an exact amount of cost.
type amount struct{ big.Rat }

func costOfCharges(n *big.Int, cost headgate.Cost) (a amount) {
	a.SetString(cost.String())
	a.Mul(&a.Rat, new(big.Rat).SetInt(n))
	return a
}

func (a *amount) String() string {
	s := a.FloatString(9) // a cost has no more digits after the point
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

func (a *amount) grouped() string { return accesslog.GroupThousands(a.String()) }

func (a amount) MarshalJSON() ([]byte, error) { return json.Marshal(json.Number(a.String())) }
