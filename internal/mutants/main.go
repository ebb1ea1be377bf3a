// Mutants changes a package in many ways, one at a time, and counts the changes that its tests find:
//
//	go run ./internal/mutants [-tests ./store/memory,...] [-in Decide,bucket.go] [-max 300 -seed 1] ./law
//
// A comparison, an operation or a condition is turned round, a whole number is one more or one less, a duration is
// twice as long or half, true is false, a simple statement is left out. All changes are compiled into one test
// binary, which does the one that its environment names; the files themselves stay as they are. A mutant is killed
// if a test fails or takes ten times as long as it did without it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/housetest"
)

// options are the flags.
type options struct {
	tests   string
	skip    string
	max     int
	seed    uint64
	only    string
	in      string
	workers int
	verbose bool
}

func main() {
	var o options
	flag.StringVar(&o.tests, "tests", "", "run the tests of these `packages` too, divided by commas")
	flag.StringVar(&o.skip, "skip", "", "leave out tests with this `text` in their name")
	flag.IntVar(&o.max, "max", 0, "try so `many` mutants, chosen by the seed; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "choose the mutants by this `number`")
	flag.StringVar(&o.only, "only", "",
		"try the mutants of these `numbers` alone, divided by commas; of one, print what its tests say")
	flag.StringVar(&o.in, "in", "", "try the mutants in these `functions` or files alone, divided by commas")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "try so `many` mutants at a time")
	flag.BoolVar(&o.verbose, "v", false, "print the mutants that are killed too, and by what")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	verdicts, err := hunt(ctx, flag.Arg(0), &o)
	if stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	report(flag.Arg(0), verdicts)
}

// hunt tries the mutants of a package. It prints those that survive when it knows.
func hunt(ctx context.Context, dir string, o *options) ([]verdict, error) {
	temp, err := os.MkdirTemp("", "headgate-mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	source, err := housetest.ReadSource(ctx, dir)
	if err != nil {
		return nil, err
	}
	mutants, files, err := find(source)
	if err != nil {
		return nil, err
	}
	dirs := []string{source.Dir}
	for d := range strings.SplitSeq(o.tests, ",") {
		if d != "" {
			dirs = append(dirs, filepath.FromSlash(d))
		}
	}
	suites, err := build(ctx, temp, source.Types.Name(), len(mutants), files, dirs)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	var tests []*test
	for _, s := range suites {
		more, err := s.record(ctx, temp, o.skip, 5*time.Minute)
		if err != nil {
			return nil, err
		}
		tests = append(tests, more...)
	}
	fmt.Printf("%s: %d mutants, %d tests that reach some, which took %v\n", source.Path, len(mutants), len(tests),
		time.Since(begin).Round(time.Second))
	for _, t := range tests {
		if o.verbose {
			fmt.Printf("%s reaches %d in %v\n", t.name, len(t.reaches), t.took.Round(time.Millisecond))
		}
	}
	return try(ctx, choose(mutants, o), tests, o), ctx.Err()
}

// choose returns the mutants to be tried.
func choose(mutants []*mutant, o *options) []*mutant {
	if o.only != "" {
		numbers := strings.Split(o.only, ",")
		return slices.DeleteFunc(mutants, func(m *mutant) bool { return !slices.Contains(numbers, strconv.Itoa(m.n)) })
	}
	if o.in != "" {
		places := strings.Split(o.in, ",")
		mutants = slices.DeleteFunc(mutants, func(m *mutant) bool {
			return !slices.Contains(places, m.in) && !slices.Contains(places, m.file)
		})
	}
	if o.max > 0 && o.max < len(mutants) {
		random := rand.New(rand.NewPCG(o.seed, 0))
		random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
		mutants = mutants[:o.max]
		slices.SortFunc(mutants, func(a, b *mutant) int { return a.n - b.n })
	}
	return mutants
}

// verdict is what became of a mutant.
type verdict struct {
	*mutant
	reached  int    // by how many tests
	killer   string // "" if it survives
	timedOut bool
}

// try tries mutants, several at a time.
func try(ctx context.Context, mutants []*mutant, tests []*test, o *options) []verdict {
	h := hunter{tests: tests, loud: len(mutants) == 1, last: map[string]*test{}}
	verdicts := make([]verdict, len(mutants))
	next := make(chan int)
	var all sync.WaitGroup
	for range o.workers {
		all.Go(func() {
			for i := range next {
				v := h.attempt(ctx, mutants[i])
				if v.killer == "" {
					fmt.Printf("%d survives %d tests: %v\n", v.n, v.reached, v.mutant)
				} else if o.verbose {
					fmt.Printf("%d is killed by %s: %v\n", v.n, v.killer, v.mutant)
				}
				verdicts[i] = v
			}
		})
	}
	for i := range mutants {
		if ctx.Err() == nil {
			next <- i
		}
	}
	close(next)
	all.Wait()
	return verdicts
}

// hunter knows the tests, and which of them killed the last mutant in each function.
type hunter struct {
	tests []*test
	loud  bool

	mu   sync.Mutex
	last map[string]*test // by function
}

// brief is how long a test may take to be run together with others.
const brief = 300 * time.Millisecond

// order returns the tests that reach a mutant, those of a group to be run together: first the one that killed the last
// mutant in the same function, then the short ones.
func (h *hunter) order(m *mutant) (order [][]*test) {
	h.mu.Lock()
	last := h.last[m.in]
	h.mu.Unlock()
	if last != nil && last.reaches[m.n] {
		order = append(order, []*test{last})
	}
	var long [][]*test
	short := map[*suite][]*test{}
	for _, t := range h.tests {
		switch {
		case t == last || !t.reaches[m.n]:
		case t.took <= brief:
			short[t.suite] = append(short[t.suite], t)
		default:
			long = append(long, []*test{t})
		}
	}
	return append(slices.AppendSeq(order, maps.Values(short)), long...)
}

// attempt runs the tests that reach a mutant until one fails.
func (h *hunter) attempt(ctx context.Context, m *mutant) verdict {
	v := verdict{mutant: m}
	order := h.order(m)
	for _, group := range order {
		v.reached += len(group)
	}
	for _, group := range order {
		limit := 10 * time.Second
		for _, t := range group {
			limit += 10 * t.took
		}
		out, err := group[0].suite.run(ctx, only(group...), limit, fmt.Sprint(activeEnv, "=", m.n))
		if h.loud {
			fmt.Println(out)
		}
		if err == nil {
			continue
		}
		v.timedOut = errors.Is(err, context.DeadlineExceeded)
		v.killer = killer(out, group)
		for _, t := range group {
			if t.name == v.killer || len(group) == 1 {
				h.mu.Lock()
				h.last[m.in] = t
				h.mu.Unlock()
			}
		}
		break
	}
	return v
}

// killer returns the test that failed, as its output says, or those of a group whose process ended otherwise.
func killer(out string, group []*test) string {
	if _, after, ok := strings.Cut(out, "--- FAIL: "); ok {
		return strings.Fields(after)[0]
	}
	return only(group...)
}

// report prints the row of a table.
func report(pkg string, verdicts []verdict) {
	killed, timedOut, unreached := 0, 0, 0
	for _, v := range verdicts {
		if v.killer != "" {
			killed++
		} else if v.reached == 0 {
			unreached++
		}
		if v.timedOut {
			timedOut++
		}
	}
	fmt.Print("\n| package | tried | killed | by time | survive | not reached | share |\n",
		"|---|---|---|---|---|---|---|\n")
	fmt.Printf("| %s | %d | %d | %d | %d | %d | %.1f %% |\n", pkg, len(verdicts), killed, timedOut,
		len(verdicts)-killed, unreached, 100*float64(killed)/float64(max(1, len(verdicts))))
}
