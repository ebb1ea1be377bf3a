package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"math"
	randv2 "math/rand/v2"
	"os"
	"strconv"
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
	f.StringVar(&o.limit, "limit", "token-bucket 100/s burst 100",
		"the `limit`: a name from the config file or a one-line notation")
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
	result := load.Run(ctx, load.Config{
		Clients: o.clients, Duration: o.duration, Warmup: o.warmup,
		Progress: live.show,
	}, b.ask)
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
func newBench(ctx context.Context, l *headgate.Limiter, limit headgate.Limit, cost headgate.Cost, prefix string, keys,
	clients int,
) (*bench, error) {
	b := &bench{
		limiter: l, limit: limit, cost: cost, keys: make([]string, keys), books: make([]book, keys),
		refused: make([]onlyCount, clients),
	}
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
