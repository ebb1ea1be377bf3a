package main

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// maxClients and maxKeys bound the memory of a bench: a client takes 36 KiB, a key 80 bytes, or 88 with --zipf.
const (
	maxClients = 10_000
	maxKeys    = 10_000_000
	maxZipf    = 10
)

type benchFlags struct {
	limits               []string
	prefix, cost, settle string

	keys             []int
	clients          int
	zipf             float64
	duration, warmup time.Duration
	ids              bool
	json             outputFlag
}

func newBenchCommand() *cobra.Command {
	var options benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Ask a store as fast as it answers, and audit what it admitted",
		Long: `Ask a store as fast as it answers, from a number of clients that each have one
question under way, about keys drawn at random; then say how fast it was, and
whether it admitted no more than the limit allows.

The keys are new in each run: the prefix, a random word, a number. With several
limits each question charges a key of each, all or none. For each limit and key,
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
  headgate bench --limit 'sliding-log 100/10s' --cost 2.5 -o json
  headgate bench --keys 1000000 --zipf 1
  headgate bench --limit 'token-bucket 10/s' --limit 'token-bucket 100000/h' --keys 10000,10 --cost 5 --settle 2`,
		Args: cobra.NoArgs,
		RunE: options.run,
	}
	addSettings(cmd, config.File, config.Store)
	f := cmd.Flags()
	f.StringArrayVar(&options.limits, "limit", []string{"token-bucket 100/s burst 100"},
		"the `limit`: a name from the config file or a one-line notation; several are charged together")
	f.StringVar(&options.prefix, "key-prefix", "bench/", "how the keys start; a random word follows")
	f.StringVar(&options.cost, "cost", "1", "what each question costs, a decimal")
	f.StringVar(&options.settle, "settle", "",
		"settle each admitted question at this `cost` before the next: implies --ids")
	f.BoolVar(&options.ids, "ids", false, "give each question an id")
	f.IntSliceVar(&options.keys, "keys", []int{1000},
		"how many keys to ask about: a `number` for all limits, or one for each")
	f.Float64Var(&options.zipf, "zipf", 0, "draw keys by Zipf's law with this `exponent`; 0: all alike")
	f.IntVar(&options.clients, "clients", 32, "how many questions are under way at a time")
	f.DurationVar(&options.duration, "duration", 5*time.Second, "for how long to measure")
	f.DurationVar(&options.warmup, "warmup", 500*time.Millisecond, "for how long to ask before that")
	options.json.addFlag(cmd)
	return cmd
}

func (o *benchFlags) check() error {
	allKeys := 0
	for _, n := range o.keys {
		if n < 1 || n > maxKeys {
			return fmt.Errorf("--keys: %d is not from 1 to %d", n, maxKeys)
		}
		allKeys += n
	}
	switch {
	case allKeys > maxKeys:
		return fmt.Errorf("--keys: %d in all are more than %d", allKeys, maxKeys)
	case len(o.keys) > 1 && len(o.keys) != len(o.limits):
		return fmt.Errorf("--keys: %d numbers for %d limits", len(o.keys), len(o.limits))
	case o.clients < 1 || o.clients > maxClients:
		return fmt.Errorf("--clients: %d is not from 1 to %d", o.clients, maxClients)
	case !(o.zipf >= 0 && o.zipf <= maxZipf):
		return fmt.Errorf("--zipf: %g is not from 0 to %d", o.zipf, maxZipf)
	case o.duration <= 0:
		return fmt.Errorf("--duration: %s is not above 0", o.duration)
	case o.warmup < 0:
		return fmt.Errorf("--warmup: %s is negative", o.warmup)
	}
	return nil
}

func (o *benchFlags) workload(c *config.Config) (*workload, error) {
	cost, err := headgate.ParseCost(o.cost)
	if err != nil {
		return nil, err
	}
	work := &workload{cost: cost, ids: o.ids || o.settle != ""}
	if o.settle != "" {
		actual := headgate.Units(0)
		if strings.Trim(o.settle, "0") != "" {
			if actual, err = headgate.ParseCost(o.settle); err != nil {
				return nil, fmt.Errorf("--settle: %w", err)
			}
		}
		work.settle = &actual
	}
	for i, text := range o.limits {
		limit, err := c.Limit(text)
		if err != nil {
			return nil, err
		}
		work.limits = append(work.limits, keyedLimit{limit: limit, keys: o.keys[min(i, len(o.keys)-1)]})
	}
	return work, nil
}

func (o *benchFlags) run(cmd *cobra.Command, _ []string) error {
	if err := o.check(); err != nil {
		return err
	}
	c, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	work, err := o.workload(c)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	p, s, err := openStore(cmd, c, stores.Options{})
	if err != nil {
		return err
	}
	s = front.New(s, &front.Config{SweepEvery: -1}) // a bench removes nothing
	defer s.Close()
	limiter := headgate.New(s, &headgate.Config{Timeout: headgate.DefaultTimeout}) // a stall is no error here
	b, err := newBench(ctx, limiter, work, o.prefix+rand.Text()[:12]+"/", o.zipf, o.clients)
	if err != nil {
		return err
	}
	live := &liveLine{terminalLine: newTerminalLine(cmd.ErrOrStderr())}
	result := load.Run(ctx, load.Config{
		Clients: o.clients, Duration: o.duration, Warmup: o.warmup, Progress: live.show,
	}, b.ask)
	live.clear()

	r := b.report(result)
	if o.json {
		err = r.printJSON(cmd.OutOrStdout(), cmd.ErrOrStderr())
	} else {
		err = r.print(cmd.OutOrStdout(), work.limits, store.RedactURL(p.URL))
	}
	switch {
	case err != nil:
		return err
	case r.over.Sign() > 0:
		return errRefused
	case r.Errors > 0 && r.Admitted.Sign() == 0 && r.Refused == 0:
		return r.firstErr // nothing was measured
	}
	return nil
}

// liveLine shows the progress of a bench in one line on a terminal; elsewhere it shows nothing.
type liveLine struct {
	terminalLine
	previous load.Snapshot
}

func (l *liveLine) show(s load.Snapshot) {
	text := "warming up"
	if s.Elapsed > 0 {
		rate := float64(s.Decisions-l.previous.Decisions) / (s.Elapsed - l.previous.Elapsed).Seconds()
		text = fmt.Sprintf("%5.1fs  %s decisions/s  %s errors", s.Elapsed.Seconds(),
			accesslog.GroupThousands(strconv.FormatFloat(rate, 'f', 0, 64)), accesslog.Comma(s.Errors))
	}
	l.previous = s
	l.terminalLine.show(text)
}
