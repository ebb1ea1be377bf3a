package sim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// The flags of the simulator; `make sim SIM='...'` passes them on.
var (
	seedFlag    = flag.Uint64("seed", 0, "run this `seed` alone, and print what the checker finds")
	endFlag     = flag.Duration("end", 0, "simulate so `long` at the most, of virtual time; 0: as long as the seed says")
	outFlag     = flag.String("out", "", "with -seed: write the history to this `file`")
	fromFlag    = flag.Uint64("from", 0, "first `seed` of the search; 0: a new one, but with make test always the same")
	forFlag     = flag.Duration("for", 0, "how `long` to search; 0: until -seeds seeds were run")
	countFlag   = flag.Uint64("seeds", tier.Pick[uint64](5, 100, 1000), "how `many` seeds to run, without -for")
	stopFlag    = flag.Bool("stop", false, "end the search at the first violation")
	jsonFlag    = flag.Bool("json", false, "end with one line of JSON")
	workersFlag = flag.Int("workers", runtime.NumCPU(), "search with so many processes")
	sameFlag    = flag.Int("same", tier.Pick(1, 3, 10), "run so many seeds four times each, and compare their histories")
	strideFlag  = flag.Uint64("stride", 0, "of a worker: the distance between its seeds")
)

type totals struct {
	Decisions  int64   `json:"decisions"`
	NodeHours  float64 `json:"node_hours"`
	Seeds      int64   `json:"seeds"`
	Violations int64   `json:"violations"`

	Repeats int64 `json:"repeats"` // decisions that are repeated refusals, made without the store
}

func (t *totals) add(other totals) {
	t.Decisions += other.Decisions
	t.NodeHours += other.NodeHours
	t.Seeds += other.Seeds
	t.Violations += other.Violations
	t.Repeats += other.Repeats
}

// lastTotals has the totals of the search, or of one seed. With -json, TestMain prints them as the last line.
var lastTotals *totals

func TestMain(m *testing.M) {
	flag.Parse()
	code := leaktest.Run(m)
	if lastTotals != nil && *jsonFlag {
		text, err := json.Marshal(lastTotals)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
	os.Exit(code)
}

// searchInParallel searches with several processes, each of which runs one simulation at a time, and prints the
// violations that they find.
func searchInParallel(t *testing.T, from uint64) (sum totals) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	var mu sync.Mutex
	var workers sync.WaitGroup
	begin := time.Now()
	for i := range *workersFlag {
		workers.Go(func() {
			workerTotals, err := runWorker(ctx, from+uint64(i), uint64(*workersFlag), func(line string) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Println(line)
				if strings.HasPrefix(line, "seed ") && *stopFlag {
					cancel()
				}
			})
			mu.Lock()
			defer mu.Unlock()
			sum.add(workerTotals)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	end := time.Now()
	fmt.Printf("%d seeds from %d in %s: %d decisions (%d of them repeated refusals), %.0f node-hours, %d violations\n",
		sum.Seeds, from, end.Sub(begin).Round(time.Second), sum.Decisions, sum.Repeats, sum.NodeHours,
		sum.Violations)
	return sum
}

// runWorker runs a process that searches, and returns its totals. A process that panics or hangs counts as a violation
// of the seed that it was running, and its totals lack the decisions of all its seeds.
func runWorker(ctx context.Context, from, stride uint64, printLine func(string)) (sum totals, err error) {
	args := []string{
		"-test.run=^TestSim$", "-test.timeout=0", "-workers=1", "-json",
		"-for=" + forFlag.String(), "-seeds=" + strconv.FormatUint(max(1, *countFlag/stride), 10),
		"-end=" + endFlag.String(),
		"-from=" + strconv.FormatUint(from, 10), "-stride=" + strconv.FormatUint(stride, 10),
		"-stop=" + strconv.FormatBool(*stopFlag),
	}
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400") // a third more seeds than with GOGC=100
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return sum, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return sum, err
	}
	runningSeed, otherOutput, begun, violations := "", "", int64(0), int64(0)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		line := lines.Text()
		seed, isRunning := strings.CutPrefix(line, "running ")
		switch {
		case isRunning:
			runningSeed = seed
			begun++
		case strings.HasPrefix(line, "{"):
			_ = json.Unmarshal([]byte(line), &sum)
		case strings.HasPrefix(line, "seed "):
			violations++
			printLine(line)
		case strings.HasPrefix(line, "  "):
			printLine(line)
		default:
			otherOutput += line + "\n"
		}
	}
	err = cmd.Wait()
	sum.Violations = max(sum.Violations, violations) // with -stop, the process may be killed before it prints totals
	if err != nil && sum.Seeds == 0 && ctx.Err() == nil {
		sum.Seeds = begun
		sum.Violations++
		output := otherOutput + stderr.String()
		printLine(fmt.Sprintf("seed %s: panic: %s", runningSeed, truncate(output, 3000)))
		return sum, fmt.Errorf("seed %s: %w", runningSeed, err)
	}
	return sum, nil
}

func truncate(s string, n int) string { return s[:min(n, len(s))] }
