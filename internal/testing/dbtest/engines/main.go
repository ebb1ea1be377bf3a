// Engines runs the tests of the stores on one server after the other, and prints
// which versions these were and how long it took.
//
//	go run ./internal/testing/dbtest/engines [engine ...]
//	go run ./internal/testing/dbtest/engines -histories 20000 -few 2000 [engine ...]
//
// Without -histories it runs all tests on the servers that `make test` does not
// use, and as the engine "usual" the packages that have tests which take too long for `make test`. With -histories it
// runs the random histories alone, on all servers.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

type suite struct {
	name   string
	usual  bool // part of `make test`
	few    bool // a cluster, which takes ten times as long for a history
	memory bool // it has no server

	packages    []string
	run, skip   string // all of them on a server that is not usual
	conformance string // the random histories
}

// usual is the suite of the packages that package tier has a say in, on the servers of `make test`.
const usual = "usual"

const (
	redisPackage    = "./store/redis"
	mysqlPackage    = "./store/mysql"
	postgresPackage = "./store/postgres"
	conformance     = "^TestConformance$"
	clusters        = "Galera|GroupReplication"
	behindAPooler   = "^TestConformanceBehindAPooler$"
	ofCluster       = "^TestConformanceOfACluster"
	hostile         = "^TestNothingOfOthersIsCalled$"
	between         = conformance + "|" + hostile // the oldest and the newest version run all tests
)

var suites = []suite{
	{name: usual, usual: true, memory: true},
	{name: "memory", usual: true, memory: true, packages: []string{"./store/memory"}, conformance: conformance},
	{name: "sqlite", usual: true, memory: true, packages: []string{"./store/sqlite"}, conformance: conformance},
	{name: "postgres", usual: true, packages: []string{postgresPackage}, conformance: conformance},
	{
		name: "pgbouncer", packages: []string{postgresPackage}, run: "BehindAPooler$|" + hostile,
		conformance: behindAPooler,
	},
	{name: "postgres-13", packages: []string{postgresPackage}, conformance: conformance},
	{name: "postgres-14", run: between, packages: []string{postgresPackage}, conformance: conformance},
	{name: "postgres-16", run: between, packages: []string{postgresPackage}, conformance: conformance},
	{name: "postgres-17", run: between, packages: []string{postgresPackage}, conformance: conformance},
	{name: "postgres-18", packages: []string{postgresPackage}, conformance: conformance},
	{name: "mariadb", usual: true, packages: []string{mysqlPackage}, conformance: conformance},
	{
		name: "galera", few: true, packages: []string{mysqlPackage, "./internal/testing/dbtest"}, run: "Galera",
		conformance: "^TestGalera(Conformance$|DecisionThatWaited|Doctor$)", // the others cover what only Galera has
	},
	{name: "mariadb-11.8", packages: []string{mysqlPackage}, skip: clusters, conformance: conformance},
	{name: "mysql", packages: []string{mysqlPackage}, skip: clusters, conformance: conformance},
	{
		name: "group-replication", few: true,
		packages: []string{mysqlPackage, "./internal/testing/dbtest", "./internal/testing/doctest"},
		run:      "GroupReplication|TheGroup|InAGroup", conformance: "^TestGroupReplicationConformance$",
	},
	{name: "tidb", packages: []string{mysqlPackage}, run: "TiDB", conformance: "^TestTiDBConformance$"},
	{name: "redis", usual: true, packages: []string{redisPackage}, conformance: conformance},
	{
		name: "redis-cluster", few: true, packages: []string{redisPackage}, run: ofCluster, conformance: ofCluster,
	},
	{name: "redis-8", packages: []string{redisPackage}, conformance: conformance},
	{name: "valkey", packages: []string{redisPackage}, conformance: conformance},
}

func main() { os.Exit(runAll()) }

// runAll returns what to exit with.
func runAll() int {
	histories := flag.Int("histories", 0, "how many random histories to run, and nothing else")
	few := flag.Int("few", 200, "how many of them on a cluster")
	parallel := flag.Int("parallel", 2, "how many engines to test at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	chosen, err := choose(flag.Args(), *histories > 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	begin := time.Now()
	results := runEach(ctx, chosen, *parallel, func(s *suite) result {
		n := 2000
		if *histories > 0 {
			n = *histories
		}
		if s.few {
			n = *few
		}
		return run(ctx, s, n, *histories > 0)
	})
	table(os.Stdout, results)
	fmt.Printf("%v in all\n", time.Since(begin).Round(time.Second))
	if len(results) < len(chosen) || slices.ContainsFunc(results, func(r result) bool { return r.err != nil }) {
		return 1
	}
	return 0
}

// runEach runs suites, a few at a time, and returns the results of those that were begun.
// What one has said is printed when it ends, so that they do not mix.
func runEach(ctx context.Context, chosen []suite, parallel int, run func(s *suite) result) []result {
	results := make([]result, len(chosen))
	var next atomic.Int64
	var printing sync.Mutex
	var all sync.WaitGroup
	for range max(1, parallel) {
		all.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(chosen) && ctx.Err() == nil; i = next.Add(1) - 1 {
				r := run(&chosen[i])
				printing.Lock()
				fmt.Printf("== %s\n%s   %s, %v\n", r.suite.name, r.said, r.verdict(), r.took.Round(time.Second))
				results[i] = r
				printing.Unlock()
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(results, func(r result) bool { return r.suite == nil })
}

// choose returns the suites of some names, or all that there are for the purpose.
func choose(names []string, histories bool) ([]suite, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(suites), func(s suite) bool {
			return (s.name == usual) == histories && s.usual
		}), nil
	}
	var list []suite
	for _, name := range names {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if i < 0 {
			known := make([]string, len(suites))
			for i := range suites {
				known[i] = suites[i].name
			}
			return nil, fmt.Errorf("no engine %q is known, only %s", name, strings.Join(known, ", "))
		}
		list = append(list, suites[i])
	}
	return list, nil
}

// usualPackages returns the packages whose tests depend on the tier: they import package tier, or the suite.
func usualPackages(ctx context.Context, pattern string) (packages []string, err error) {
	const imports = `{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}} `
	out, err := exec.CommandContext(ctx, "go", "list", "-f", imports, pattern).Output()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "/internal/testing/tier ") || strings.Contains(line, "/store/storetest ") {
			packages = append(packages, strings.Fields(line)[0])
		}
	}
	return packages, err
}

func table(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nengine\tversion\thistories\ttests\ttime\tresult")
	for _, r := range results {
		version := strings.Join(r.versions, ", ")
		if r.suite.memory {
			version = "-"
		}
		fmt.Fprintln(t, strings.Join([]string{
			r.suite.name, version, strconv.Itoa(r.histories), strconv.Itoa(r.passed),
			r.took.Round(time.Second).String(), r.verdict(),
		}, "\t"))
	}
	_ = t.Flush()
}
