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
	"github.com/headgate/headgate/internal/load"
)

// benchReport has the results. Amounts are in units of cost.
type benchReport struct {
	Rate     float64 `json:"decisions_per_s"`
	Admitted amount  `json:"admitted"`
	Refused  int64   `json:"refused"` // questions
	Errors   int64   `json:"errors"`
	Bound    amount  `json:"bound"` // the sum over the keys
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`

	over     amount // admitted beyond the bound, key by key
	overKeys int
	first    error
	load     load.Result
}

// report audits what was admitted.
func (b *bench) report(result load.Result) *benchReport {
	var sum audited
	r := &benchReport{
		Rate:   math.Round(result.PerSecond()*10) / 10,
		Errors: b.errors.Load(),
		P50:    micros(result.Quantile(0.5)),
		P99:    micros(result.Quantile(0.99)),
		first:  b.first,
		load:   result,
	}
	for i, books := range b.books {
		for k := range books {
			b.audit(&books[k], b.limits[i].limit, &sum, r)
		}
	}
	for i := range b.refused {
		r.Refused += b.refused[i].n
	}
	r.Admitted, r.Bound = b.worth(&sum.admitted, &sum.settled), times(&sum.bound, b.cost)
	return r
}

// audited are sums over the keys, in charges.
type audited struct{ admitted, settled, bound big.Int }

// audit compares what was admitted of a key with what could be.
func (b *bench) audit(k *book, limit headgate.Limit, sum *audited, r *benchReport) {
	n, settled := big.NewInt(k.admitted.Load()), big.NewInt(k.settled.Load())
	if n.Sign() == 0 {
		return
	}
	within, err := limit.Within(time.UnixMicro(k.from.Load()), time.UnixMicro(k.to.Load()), b.cost)
	if err != nil {
		panic(err) // newBench tried this cost
	}
	most := big.NewInt(within)
	sum.admitted.Add(&sum.admitted, n)
	sum.settled.Add(&sum.settled, settled)
	sum.bound.Add(&sum.bound, most)
	if n.Cmp(most) <= 0 {
		return
	}
	over, bound := b.worth(n, settled), times(most, b.cost)
	if over.Sub(&over.Rat, &bound.Rat); over.Sign() > 0 {
		r.over.Add(&r.over.Rat, &over.Rat)
		r.overKeys++
	}
}

// worth returns what charges cost of which some were settled.
func (b *bench) worth(charges, settled *big.Int) amount {
	if b.settle == nil {
		return times(charges, b.cost)
	}
	whole, actual := times(new(big.Int).Sub(charges, settled), b.cost), times(settled, *b.settle)
	whole.Add(&whole.Rat, &actual.Rat)
	return whole
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// print prints the report for people.
func (r *benchReport) print(w io.Writer, limits []limited, store string) error {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("store", "%s", store)
	for _, l := range limits {
		line("limit", "%s, %s keys", l.limit, grouped(strconv.Itoa(l.keys)))
	}
	line("decisions", "%s/s for %s", grouped(strconv.FormatFloat(r.Rate, 'f', 0, 64)),
		r.load.Elapsed.Round(time.Millisecond))
	line("admitted", "%s", r.verdict())
	if r.Refused > 0 {
		line("refused", "%s", grouped(strconv.FormatInt(r.Refused, 10)))
	} else {
		line("refused", "0: no key came to its limit")
	}
	line("errors", "%s", grouped(strconv.FormatInt(r.Errors, 10)))
	if r.first != nil {
		line("", "first: %v", r.first)
	}
	q := func(share float64) time.Duration { return brief(r.load.Quantile(share)) }
	line("latency", "p50 %s  p90 %s  p99 %s  p99.9 %s  max %s", q(0.5), q(0.9), q(0.99), q(0.999), q(1))
	_, err := io.WriteString(w, b.String())
	return err
}

// printJSON prints the report for programs, and to stderr what is bad news.
func (r *benchReport) printJSON(w, stderr io.Writer) error {
	if r.over.Sign() > 0 {
		fmt.Fprintf(stderr, "headgate bench: admitted %s\n", r.verdict())
	}
	if r.first != nil {
		fmt.Fprintf(stderr, "headgate bench: errors: %d, first: %v\n", r.Errors, r.first)
	}
	return printJSON(w, r)
}

// verdict returns the audit in words.
func (r *benchReport) verdict() string {
	s := r.Admitted.grouped() + " of " + r.Bound.grouped() + " allowed: "
	if r.over.Sign() > 0 {
		return fmt.Sprintf("%sOVER by %s, on %d of the keys", s, r.over.grouped(), r.overKeys)
	}
	return s + "exact"
}

// brief rounds to three digits.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}

// amount is an exact amount of cost.
type amount struct{ big.Rat }

// times returns what n charges of a cost amount to.
func times(n *big.Int, cost headgate.Cost) (a amount) {
	a.SetString(cost.String())
	a.Mul(&a.Rat, new(big.Rat).SetInt(n))
	return a
}

// String returns the shortest decimal.
func (a *amount) String() string {
	s := a.FloatString(9) // a cost has no more digits after the point
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

func (a *amount) grouped() string { return grouped(a.String()) }

// MarshalJSON writes a number.
func (a amount) MarshalJSON() ([]byte, error) { return json.Marshal(json.Number(a.String())) }

// grouped sets commas between thousands.
func grouped(s string) string {
	whole, _, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
