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
	apart     = 10_000 // the microseconds between two starts
)

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

// runWaiters starts as many waiters as each line of the input says. It prints the start that each
// waiter was promised, and then the time at which it started.
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
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		for range n {
			all.Go(func() {
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
				failed = err
			})
		}
	}
	all.Wait()
	return failed
}

// waiterProcess is a process that calls runWaiters, and its output.
type waiterProcess struct {
	*dbtest.Child
	ready    chan struct{}
	read     chan struct{}
	mu       sync.Mutex
	promised []int64
	started  map[int64]int64 // the actual start, by the promised one
}

func newWaiterProcess(t *testing.T, dsn string) *waiterProcess {
	t.Helper()
	c := &waiterProcess{
		Child: dbtest.StartChild(t, dsn), ready: make(chan struct{}), read: make(chan struct{}),
		started: map[int64]int64{},
	}
	go func() {
		defer close(c.read)
		for lines := bufio.NewScanner(c.Out); lines.Scan(); {
			f := append(strings.Fields(lines.Text()), "0")
			at, _ := strconv.ParseInt(f[1], 10, 64)
			now, _ := strconv.ParseInt(f[2], 10, 64)
			c.mu.Lock()
			switch f[0] {
			case "ready":
				close(c.ready)
			case "promised":
				c.promised = append(c.promised, at)
			case "started":
				c.started[at] = now
			}
			c.mu.Unlock()
		}
	}()
	return c
}

// promises returns how many starts the process has been promised so far.
func (c *waiterProcess) promises() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.promised)
}

// TestWaitersOfManyProcesses lets many processes wait for one key. Some of the processes are killed
// while they sleep. The starts that they were promised are lost, and nothing changes for the others.
func TestWaitersOfManyProcesses(t *testing.T) {
	tier.Engines(t)
	processes := 10
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_PROCESSES")); err == nil {
		processes = n
	}
	const each = 20
	dsn := migrated.Postgres(t)
	pg, err := postgres.Open(context.Background(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	if _, err := pg.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	crowds := make([]*waiterProcess, processes)
	for i := range crowds {
		crowds[i] = newWaiterProcess(t, dsn)
	}
	for _, c := range crowds {
		<-c.ready
	}
	for _, c := range crowds {
		fmt.Fprintln(c.In, each)
	}
	dead := crowds[:processes/5]
	for _, c := range dead {
		await.Until(t, "the promises of a process", func() bool { return c.promises() == each })
		c.Kill()
	}
	for _, c := range crowds[len(dead):] { // they queue behind killed processes
		fmt.Fprintln(c.In, 1)
		c.In.Close()
	}
	var promised, lateness []int64
	var started, early int
	type pair struct{ at, now int64 }
	var order []pair
	for i, c := range crowds {
		<-c.read
		if err := c.Wait(); err != nil && i >= len(dead) {
			t.Errorf("process %d: %v", i, err)
		}
		promised = append(promised, c.promised...)
		for at, now := range c.started {
			order = append(order, pair{at, now})
			lateness = append(lateness, now-at)
			if started++; now < at {
				early++
			}
		}
	}
	slices.Sort(promised)
	slices.Sort(lateness)
	all := processes*each + processes - len(dead)
	if len(promised) != all {
		t.Errorf("%d were promised a start, want %d", len(promised), all)
	}
	gaps := 0
	for i := 1; i < len(promised); i++ {
		switch d := promised[i] - promised[i-1]; {
		case d < apart:
			t.Errorf("starts %d and %d are %d us apart", i, i+1, d)
		case d > apart:
			gaps++ // no waiter had come yet
		}
	}
	slices.SortFunc(order, func(a, b pair) int { return int(a.now - b.now) })
	disorder := 0
	for i := 1; i < len(order); i++ {
		if order[i].at < order[i-1].at {
			disorder++
		}
	}
	t.Logf("%d processes, %d killed: %d promised, %d started; %d gaps; %d started before their turn, %d out of "+
		"order; late by %v (median), %v (99 %%), %v",
		processes, len(dead), len(promised), started, gaps, early, disorder,
		percentile(lateness, 50), percentile(lateness, 99), percentile(lateness, 100))
	if most := (processes - len(dead)) * (each + 1); started < most {
		t.Errorf("%d started, want at least %d of the live processes", started, most)
	}
	if early > 0 {
		t.Errorf("%d started before their turn", early)
	}
}

func percentile(sorted []int64, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return time.Duration(sorted[(len(sorted)-1)*percent/100]) * time.Microsecond
}
