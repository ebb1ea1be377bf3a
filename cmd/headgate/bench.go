package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	randv2 "math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// The most that is held in memory for: 36 KiB a client, 80 bytes a key.
const (
	mostClients = 10_000
	mostKeys    = 10_000_000
)

// benchOptions are the flags of `headgate bench`.
type benchOptions struct {
	limit, prefix, cost string

	keys, clients    int
	duration, warmup time.Duration
	json             bool
}

// newBenchCommand returns `headgate bench`.
func newBenchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Ask a store as fast as it answers, and audit what it admitted",
		Long: `Ask a store as fast as it answers, from so many clients that each have one
question under way, about keys drawn at random; then say how fast it was, and
whether it admitted no more than the limit allows.

The keys are new in each run: the prefix, a random word, a number. For each key,
what was admitted is compared with the most that its limit lets pass between the
first and the last time, by the store's clock, at which it admitted. The figures
of the audit are those of the whole run; the decisions a second and the
latencies leave out the warm-up. A question that failed is not admitted.

Nothing is removed at the end: the keys go when they are as good as new and the
store is swept, as serve does. So take a limit with a short period.

Exit 0 exact, 1 more was admitted than allowed, 2 error. Ctrl-C ends early, with
the report.`,
		Example: `  headgate bench --store postgres://localhost/app
  headgate bench --store redis://localhost/0 --clients 128 --keys 100000 --duration 30s
  headgate bench --store memory: --limit 'token-bucket 1000/s burst 10' --keys 1
  headgate bench --limit 'sliding-log 100/10s' --cost 2.5 --json`,
		Args: cobra.NoArgs,
		RunE: o.run,
	}
	addSettings(cmd, config.File, config.Store)
	f := cmd.Flags()
	f.StringVar(&o.limit, "limit", "token-bucket 100/s burst 100", "the `limit`: a name from the config file or a one-line notation")
	f.StringVar(&o.prefix, "key-prefix", "bench/", "how the keys start; a random word follows")
	f.StringVar(&o.cost, "cost", "1", "what each question costs, a decimal")
	f.IntVar(&o.keys, "keys", 1000, "how many keys to ask about")
	f.IntVar(&o.clients, "clients", 32, "how many questions are under way at a time")
	f.DurationVar(&o.duration, "duration", 5*time.Second, "for how long to measure")
	f.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "for how long to ask before that")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

// check says what is wrong with the flags.
func (o *benchOptions) check() error {
	switch {
	case o.keys < 1 || o.keys > mostKeys:
		return fmt.Errorf("--keys: %d is not from 1 to %d", o.keys, mostKeys)
	case o.clients < 1 || o.clients > mostClients:
		return fmt.Errorf("--clients: %d is not from 1 to %d", o.clients, mostClients)
	case o.duration <= 0:
		return fmt.Errorf("--duration: %s is not above 0", o.duration)
	case o.warmup < 0:
		return fmt.Errorf("--warmup: %s is negative", o.warmup)
	}
	return nil
}

func (o *benchOptions) run(cmd *cobra.Command, _ []string) error {
	if err := o.check(); err != nil {
		return err
	}
	cost, err := headgate.ParseCost(o.cost)
	if err != nil {
		return err
	}
	c, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	limit, err := c.Resolve(o.limit)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	p, err := placeOf(cmd, c)
	if err != nil {
		return err
	}
	s, err := p.open(cmd, storeOptions{})
	if err != nil {
		return err
	}
	s = front.New(s, &front.Config{SweepEvery: -1}) // it removes nothing
	defer s.Close()
	b, err := newBench(ctx, headgate.New(s, nil), limit, cost, o.prefix+rand.Text()[:12]+"/", o.keys, o.clients)
	if err != nil {
		return err
	}
	live := newLive(cmd.ErrOrStderr())
	result := load.Run(ctx, load.Config{Clients: o.clients, Duration: o.duration, Warmup: o.warmup, Progress: live.show}, b.ask)
	live.clear()

	r := b.report(result)
	if o.json {
		err = r.printJSON(cmd.OutOrStdout(), cmd.ErrOrStderr())
	} else {
		err = r.print(cmd.OutOrStdout(), limit, store.RedactURL(p.url))
	}
	switch {
	case err != nil:
		return err
	case r.over.Sign() > 0:
		return errRefused
	case r.Errors > 0 && r.Admitted.Sign() == 0 && r.Refused == 0:
		return r.first // nothing was measured
	}
	return nil
}

// bench asks a limiter and keeps books of what it admitted. Its clients share
// nothing but the books of a key that several of them ask about at a time.
type bench struct {
	limiter *headgate.Limiter
	limit   headgate.Limit
	cost    headgate.Cost
	start   time.Time // of the store's clock
	keys    []string
	books   []book      // of each key
	refused []onlyCount // by each client

	errors atomic.Int64
	once   sync.Once
	first  error // of those
}

// book is what is known about a key: how often it was admitted, and from when
// to when, in microseconds of the store's clock.
type book struct{ admitted, from, to atomic.Int64 }

// onlyCount is a counter on a cache line of its own.
type onlyCount struct {
	n int64
	_ [120]byte
}

// newBench asks once whether the question makes sense and the store answers.
func newBench(ctx context.Context, l *headgate.Limiter, limit headgate.Limit, cost headgate.Cost, prefix string, keys, clients int) (*bench, error) {
	b := &bench{limiter: l, limit: limit, cost: cost, keys: make([]string, keys), books: make([]book, keys), refused: make([]onlyCount, clients)}
	for i := range b.keys {
		b.keys[i] = prefix + strconv.Itoa(i)
		b.books[i].from.Store(math.MaxInt64)
	}
	d, err := l.Check(ctx, headgate.Charge{Limit: limit, Key: b.keys[keys-1], Cost: cost})
	if err != nil {
		return nil, err
	}
	b.start = d.At
	atOnce, err := limit.Within(d.At, d.At, cost)
	if err == nil && atOnce == 0 {
		err = fmt.Errorf("--cost: %s is more than %s ever lets pass at once", cost, limit)
	}
	return b, err
}

// ask is a load.Ask.
func (b *bench) ask(ctx context.Context, client int, rng *randv2.Rand) (bool, error) {
	i := rng.IntN(len(b.keys))
	d, err := b.limiter.Take(ctx, headgate.Charge{Limit: b.limit, Key: b.keys[i], Cost: b.cost})
	k := &b.books[i]
	switch {
	case err != nil:
		// It may have been charged all the same: then the key is in use
		// since some time that is not known.
		lower(&k.from, b.start.UnixMicro())
		if ctx.Err() == nil {
			b.errors.Add(1)
			b.once.Do(func() { b.first = err })
		}
	case d.Allowed:
		at := d.At.UnixMicro()
		k.admitted.Add(1)
		lower(&k.from, at)
		raise(&k.to, at)
	default:
		b.refused[client].n++
	}
	return d.Allowed, err
}

func lower(a *atomic.Int64, v int64) {
	for old := a.Load(); v < old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

// benchReport is what came out. Amounts are in units of cost.
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
	var admitted, bound, over big.Int
	r := &benchReport{
		Rate:   math.Round(result.PerSecond()*10) / 10,
		Errors: b.errors.Load(),
		P50:    micros(result.Quantile(0.5)),
		P99:    micros(result.Quantile(0.99)),
		first:  b.first,
		load:   result,
	}
	for i := range b.books {
		k := &b.books[i]
		n := k.admitted.Load()
		if n == 0 {
			continue
		}
		most, err := b.limit.Within(time.UnixMicro(k.from.Load()), time.UnixMicro(k.to.Load()), b.cost)
		if err != nil {
			panic(err) // newBench asked with this cost
		}
		admitted.Add(&admitted, big.NewInt(n))
		bound.Add(&bound, big.NewInt(most))
		if n > most {
			over.Add(&over, big.NewInt(n-most))
			r.overKeys++
		}
	}
	for i := range b.refused {
		r.Refused += b.refused[i].n
	}
	r.Admitted, r.Bound, r.over = times(&admitted, b.cost), times(&bound, b.cost), times(&over, b.cost)
	return r
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// print prints the report for people.
func (r *benchReport) print(w io.Writer, limit headgate.Limit, store string) error {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("store", "%s", store)
	line("limit", "%s", limit)
	line("decisions", "%s/s for %s", grouped(strconv.FormatFloat(r.Rate, 'f', 0, 64)), r.load.Elapsed.Round(time.Millisecond))
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

// verdict is the audit in words.
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

// live shows progress in one line on a terminal; elsewhere it shows nothing.
type live struct {
	w    io.Writer // nil: not a terminal
	last load.Snapshot
}

func newLive(w io.Writer) *live {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &live{w: w}
	}
	return &live{}
}

func (l *live) show(s load.Snapshot) {
	if l.w == nil {
		return
	}
	text := "warming up"
	if s.Elapsed > 0 {
		rate := float64(s.Decisions-l.last.Decisions) / (s.Elapsed - l.last.Elapsed).Seconds()
		text = fmt.Sprintf("%5.1fs  %s decisions/s  %s errors", s.Elapsed.Seconds(),
			grouped(strconv.FormatFloat(rate, 'f', 0, 64)), grouped(strconv.FormatInt(s.Errors, 10)))
	}
	l.last = s
	fmt.Fprint(l.w, "\r\x1b[K"+text)
}

func (l *live) clear() {
	if l.w != nil {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
