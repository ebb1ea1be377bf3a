package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/coalesce"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/postgres"
)

const (
	waitLimit = "token-bucket 100/s burst 1"
	startGap  = 10_000 // the microseconds between two starts: 100 a second
)

// TestMain runs the tests, or the task of a child process that a test has started.
func TestMain(m *testing.M) {
	if dsn := dbtest.Task(); dsn != "" {
		if err := runWaiters(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// runWaiters reads numbers from the input, and starts as many waiters. It prints when it is ready, the start that
// Reserve promises to each waiter, and later the time at which the waiter started. The error is that of some waiter.
func runWaiters(dsn string) error {
	ctx := context.Background()
	pg, err := postgres.Open(ctx, dsn+"?pool_max_conns=1", nil)
	if err != nil {
		return err
	}
	l := headgate.New(coalesce.New(pg, nil), nil)
	charge := headgate.Charge{Limit: headgate.MustParse(waitLimit), Key: "k"}
	if _, err := l.Check(ctx, charge); err != nil { // makes the connection
		return err
	}
	fmt.Println("ready 0")
	var waiters sync.WaitGroup
	var mu sync.Mutex
	var lastErr error
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		for range n {
			waiters.Go(func() {
				r, err := l.Reserve(ctx, time.Hour, charge)
				if err == nil {
					fmt.Println("promised", r.StartAt.UnixMicro())
					err = r.Sleep(ctx)
				}
				if err == nil {
					fmt.Println("started", r.StartAt.UnixMicro(), time.Now().UnixMicro())
					return
				}
				mu.Lock()
				defer mu.Unlock()
				lastErr = err
			})
		}
	}
	waiters.Wait()
	return lastErr
}

// waiterProcess is a process that calls runWaiters, and what it has printed.
type waiterProcess struct {
	*dbtest.Child
	ready          chan struct{} // closed when the process has connected
	outputDone     chan struct{} // closed at the end of the output
	mu             sync.Mutex
	promisedStarts []int64
	actualStarts   map[int64]int64 // the key is the promised start
}

// newWaiterProcess starts a process and reads its output.
func newWaiterProcess(t *testing.T, dsn string) *waiterProcess {
	t.Helper()
	c := &waiterProcess{
		Child: dbtest.StartChild(t, dsn), ready: make(chan struct{}), outputDone: make(chan struct{}),
		actualStarts: map[int64]int64{},
	}
	go func() {
		defer close(c.outputDone)
		for lines := bufio.NewScanner(c.Out); lines.Scan(); {
			fields := append(strings.Fields(lines.Text()), "0") // event, promised start, actual start
			promised, _ := strconv.ParseInt(fields[1], 10, 64)
			actual, _ := strconv.ParseInt(fields[2], 10, 64)
			c.mu.Lock()
			switch fields[0] {
			case "ready":
				close(c.ready)
			case "promised":
				c.promisedStarts = append(c.promisedStarts, promised)
			case "started":
				c.actualStarts[promised] = actual
			}
			c.mu.Unlock()
		}
	}()
	return c
}

// countPromises returns how many starts the process has been promised so far.
func (c *waiterProcess) countPromises() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.promisedStarts)
}

// TestWaitersOfManyProcesses lets ten processes Reserve starts of one key, and kills a fifth of them while they sleep.
// All promised starts must lie startGap apart or more, and no waiter of the other processes may start early or never.
func TestWaitersOfManyProcesses(t *testing.T) {
	tier.Engines(t)
	processes := 10
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_PROCESSES")); err == nil {
		processes = n
	}
	const waitersEach = 20
	dsn := migrated.Postgres(t)
	pg, err := postgres.Open(context.Background(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	if _, err := pg.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	children := make([]*waiterProcess, processes)
	for i := range children {
		children[i] = newWaiterProcess(t, dsn)
	}
	for _, c := range children {
		<-c.ready
	}
	for _, c := range children {
		fmt.Fprintln(c.In, waitersEach)
	}
	killed := children[:processes/5]
	for _, c := range killed {
		await.Until(t, "the promises of a process", func() bool { return c.countPromises() == waitersEach })
		c.Kill()
	}
	for _, c := range children[len(killed):] { // these waiters queue behind the promises of killed processes
		fmt.Fprintln(c.In, 1)
		c.In.Close()
	}
	var promisedStarts, lateness []int64
	var started, early int
	type waiterStart struct{ promised, actual int64 }
	var starts []waiterStart
	for i, c := range children {
		<-c.outputDone
		if err := c.Wait(); err != nil && i >= len(killed) {
			t.Errorf("process %d: %v", i, err)
		}
		promisedStarts = append(promisedStarts, c.promisedStarts...)
		for promised, actual := range c.actualStarts {
			starts = append(starts, waiterStart{promised, actual})
			lateness = append(lateness, actual-promised)
			if started++; actual < promised {
				early++
			}
		}
	}
	slices.Sort(promisedStarts)
	slices.Sort(lateness)
	wantPromised := processes*waitersEach + processes - len(killed)
	if len(promisedStarts) != wantPromised {
		t.Errorf("got %d promised starts, want %d", len(promisedStarts), wantPromised)
	}
	gaps := 0
	for i := 1; i < len(promisedStarts); i++ {
		switch d := promisedStarts[i] - promisedStarts[i-1]; {
		case d < startGap:
			t.Errorf("starts %d and %d: got %d us between them, want at least %d", i, i+1, d, startGap)
		case d > startGap:
			gaps++ // no waiter was in the queue
		}
	}
	slices.SortFunc(starts, func(a, b waiterStart) int { return int(a.actual - b.actual) })
	outOfOrder := 0
	for i := 1; i < len(starts); i++ {
		if starts[i].promised < starts[i-1].promised {
			outOfOrder++
		}
	}
	t.Logf("%d processes, %d killed: %d promised, %d started; %d gaps; %d started before their turn, %d out of "+
		"order; late by %v (median), %v (99 %%), %v",
		processes, len(killed), len(promisedStarts), started, gaps, early, outOfOrder,
		percentile(lateness, 50), percentile(lateness, 99), percentile(lateness, 100))
	if want := (processes - len(killed)) * (waitersEach + 1); started < want {
		t.Errorf("got %d starts, want at least %d of the live processes", started, want)
	}
	if early > 0 {
		t.Errorf("got %d waiters that started early, want 0", early)
	}
}

// percentile returns a percentile of sorted microseconds.
func percentile(sorted []int64, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return time.Duration(sorted[(len(sorted)-1)*percent/100]) * time.Microsecond
}
