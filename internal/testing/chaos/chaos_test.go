package chaos_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/chaos"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	durationFlag = flag.Duration("for", 20*time.Second, "how long to break each engine")
	enginesFlag  = flag.String("engines", "postgres mariadb redis", "which, with spaces between them; all for all")
	seedFlag     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the order of the faults")
	tableFlag    = flag.String("table", "", "file to write the table to")
)

var engines = []chaos.Engine{
	{Name: "postgres", Start: postgresStarter("")},
	{Name: "postgres-serializable", Start: postgresStarter("?default_transaction_isolation=serializable")},
	{Name: "postgres-standby", Start: startPostgresPair},
	{Name: "mariadb", Start: mysqlStarter("")},
	{Name: "mysql", Start: mysqlStarter("mysql")},
	{Name: "group-replication", Start: groupStarter(false)},
	{Name: "group-replication-single", Start: groupStarter(true)},
	{Name: "galera", Start: startGalera},
	{Name: "redis", Start: redisStarter("", "--appendonly", "yes", "--appendfsync", "always")},
	{Name: "valkey", Start: redisStarter("valkey", "--appendonly", "yes", "--appendfsync", "always")},
	{Name: "redis-cluster", Start: startRedisCluster},
	{Name: "redis-sentinel", Start: startSentinel},
	{Name: "sqlite", Start: startSQLite},
}

// TestLostChargesAfterAKillAreFound checks that Run finds the charges that a Redis without a disk loses when killed.
func TestLostChargesAfterAKillAreFound(t *testing.T) {
	tier.Nightly(t)
	e := &chaos.Engine{Name: "redis without a disk", Start: redisStarter("", "--save", "")}
	for s := uint64(1); s < 20; s++ { // on a slow machine a run has few faults
		r := chaos.Run(t, e, 5*time.Second, s)
		if t.Log(r.Row()); r.Violations > 0 {
			t.Log(r.FirstViolation)
			return
		}
	}
	t.Error("nothing was found, although each kill forgets all charges")
}

// TestRedisKeepsItsBoundsThroughAFewFaults breaks Redis for 3 s. The other tests of this package run nightly.
func TestRedisKeepsItsBoundsThroughAFewFaults(t *testing.T) {
	t.Parallel()
	e := &chaos.Engine{Name: "redis", Start: redisStarter("", "--appendonly", "yes", "--appendfsync", "always")}
	r := chaos.Run(t, e, 3*time.Second, 1)
	if t.Log(r.Row()); r.Violations > 0 {
		t.Errorf("%d things are not as they should be; %s\n%s", r.Violations, r.FirstViolation,
			writeHistory(t, r.History))
	}
}

// writeHistory writes a history to a file, and returns its name.
func writeHistory(t *testing.T, h *history.History) string {
	t.Helper()
	f, err := os.CreateTemp("", "headgate-chaos-*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := h.Write(f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// breakFor breaks an engine for a time, or again, for up to eight times as long, if a slow machine tests too little.
// The test fails if there are violations.
func breakFor(t *testing.T, e *chaos.Engine, duration time.Duration) chaos.Report {
	t.Helper()
	for factor := 1; ; factor *= 2 {
		r := chaos.Run(t, e, duration*time.Duration(factor), *seedFlag)
		t.Log(r.Row())
		if r.Violations > 0 {
			t.Errorf("%d things are not as they should be; %s\n%s", r.Violations, r.FirstViolation,
				writeHistory(t, r.History))
			return r
		}
		if r.Allowed+r.Refused >= 100 && r.FaultCount() >= 3 && r.Refused >= 10 {
			return r
		}
		if factor == 8 {
			t.Errorf("nothing was tested: %d decisions, %d refused, %d faults", r.Allowed+r.Refused, r.Refused,
				r.FaultCount())
			return r
		}
	}
}

// TestChaos breaks engines, one after the other, wants no violations, and writes a table of the runs.
func TestChaos(t *testing.T) {
	tier.Nightly(t)
	var rows strings.Builder
	names := strings.Fields(*enginesFlag)
	t.Logf("-seed %d", *seedFlag)
	for i := range engines {
		e := &engines[i]
		index := slices.Index(names, e.Name)
		if index < 0 && *enginesFlag != "all" {
			continue
		}
		if index >= 0 {
			names = slices.Delete(names, index, index+1)
		}
		t.Run(e.Name, func(t *testing.T) {
			r := breakFor(t, e, *durationFlag)
			rows.WriteString(r.Row() + "\n")
		})
	}
	if len(names) > 0 && *enginesFlag != "all" {
		t.Errorf("no engine is named %q", names)
	}
	if *tableFlag == "" || t.Failed() {
		return
	}
	if err := os.WriteFile(*tableFlag,
		[]byte("| engine | decisions | admitted | faults | over the bound | longest without a decision | "+
			"longest recovery |\n|---|---|---|---|---|---|---|\n"+rows.String()), 0o600); err != nil {
		t.Error(err)
	}
}
