// Engines runs the tests of the stores on one server after the other, and prints the versions of the servers and the
// times that the tests took.
//
//	go run ./internal/testing/dbtest/engines [engine ...]
//	go run ./internal/testing/dbtest/engines -histories 20000 -few 2000 [engine ...]
//
// Without -histories it runs all tests on the servers that `make test` does not use. The engine "usual" runs the
// packages with tests that take too long for `make test`. With -histories it runs only the random histories, on all
// servers.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

type suite struct {
	name      string
	usual     bool // `make test` uses the engine, too
	isCluster bool // a cluster, which takes ten times as long for a history
	noServer  bool

	packages    []string
	run, skip   string // patterns of tests, unless the engine is usual
	conformance string // pattern of the random histories; empty: ^TestConformance$
}

// usualSuite runs the packages that depend on the tier, on the servers of `make test`.
const usualSuite = "usual"

const (
	redisPackage    = "./store/redis"
	mysqlPackage    = "./store/mysql"
	postgresPackage = "./store/postgres"
	conformance     = "^TestConformance$"
	clusterTests    = "Galera|GroupReplication"
	onlyCluster     = "^TestConformanceOfACluster"
	hostileTests    = "^TestHostileObjectsAreNotCalled$"
	middleVersions  = conformance + "|" + hostileTests // the oldest and the newest version run all tests
)

var suites = []suite{
	{name: usualSuite, usual: true, noServer: true},
	{name: "memory", usual: true, noServer: true, packages: []string{"./store/memory"}},
	{name: "sqlite", usual: true, noServer: true, packages: []string{"./store/sqlite"}},
	{name: "postgres", usual: true, packages: []string{postgresPackage}},
	{
		name: "pgbouncer", packages: []string{postgresPackage}, run: "BehindAPooler$|" + hostileTests,
		conformance: "^TestConformanceBehindAPooler$",
	},
	{name: "postgres-13", packages: []string{postgresPackage}},
	{name: "postgres-14", run: middleVersions, packages: []string{postgresPackage}},
	{name: "postgres-16", run: middleVersions, packages: []string{postgresPackage}},
	{name: "postgres-17", run: middleVersions, packages: []string{postgresPackage}},
	{name: "postgres-18", packages: []string{postgresPackage}},
	{name: "mariadb", usual: true, packages: []string{mysqlPackage}},
	{
		name: "galera", isCluster: true, packages: []string{mysqlPackage, "./internal/testing/dbtest"}, run: "Galera",
		conformance: "^TestGalera(Conformance$|DecisionThatWaited|Doctor$)", // the others cover what only Galera has
	},
	{name: "mariadb-11.8", packages: []string{mysqlPackage}, skip: clusterTests},
	{name: "mysql", packages: []string{mysqlPackage}, skip: clusterTests},
	{
		name: "group-replication", isCluster: true,
		packages: []string{mysqlPackage, "./internal/testing/dbtest", "./internal/testing/doctest"},
		run:      "GroupReplication|TheGroup|InAGroup", conformance: "^TestGroupReplicationConformance$",
	},
	{name: "tidb", packages: []string{mysqlPackage}, run: "TiDB", conformance: "^TestTiDBConformance$"},
	{name: "redis", usual: true, packages: []string{redisPackage}},
	{
		name: "redis-cluster", isCluster: true, packages: []string{redisPackage},
		run: onlyCluster, conformance: onlyCluster,
	},
	{name: "redis-8", packages: []string{redisPackage}},
	{name: "valkey", packages: []string{redisPackage}},
}

func main() { os.Exit(runAll()) }

// runAll tests the engines in the arguments, and returns the exit status.
func runAll() int {
	histories := flag.Int("histories", 0, "how many random histories to run, and nothing else")
	clusterHistories := flag.Int("few", 200, "how many of them on a cluster")
	parallel := flag.Int("parallel", 2, "how many engines to test at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	toRun, err := choose(flag.Args(), *histories > 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	begin := time.Now()
	results := make([]result, len(toRun)) // suite is nil if the engine was not begun
	var outputMu sync.Mutex
	var group errgroup.Group
	group.SetLimit(max(1, *parallel))
	for i := range toRun {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			n := cmp.Or(*histories, 2000)
			if toRun[i].isCluster {
				n = *clusterHistories
			}
			r := run(ctx, &toRun[i], n, *histories > 0)
			outputMu.Lock() // the output of an engine is printed when it ends, so that outputs do not mix
			defer outputMu.Unlock()
			fmt.Printf("== %s\n%s   %s, %v\n", r.suite.name, r.output, r.verdict(), r.duration.Round(time.Second))
			results[i] = r
			return r.err
		})
	}
	err = group.Wait()
	printTable(results)
	fmt.Printf("%v in all\n", time.Since(begin).Round(time.Second))
	if err != nil {
		return 1
	}
	return 0
}

// choose returns the suites with the names. Without names it returns all suites but the usual one if histories is set,
// and else the usual one and those of engines that `make test` does not use.
func choose(names []string, histories bool) ([]suite, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(suites), func(s suite) bool {
			return (s.name == usualSuite) == histories && s.usual
		}), nil
	}
	var list []suite
	for _, name := range names {
		validNames := ""
		i := slices.IndexFunc(suites, func(s suite) bool {
			validNames += " " + s.name
			return s.name == name
		})
		if i < 0 {
			return nil, fmt.Errorf("no engine %q is known, only%s", name, validNames)
		}
		list = append(list, suites[i])
	}
	return list, nil
}

// usualPackages returns the packages whose tests depend on the tier: they import package tier or storetest.
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

func printTable(results []result) {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nengine\tversion\thistories\ttests\ttime\tresult")
	for _, r := range results {
		if r.suite != nil {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%v\t%s\n", r.suite.name, cmp.Or(strings.Join(r.versions, ", "), "-"),
				r.histories, r.passed, r.duration.Round(time.Second), r.verdict())
		}
	}
	_ = t.Flush()
}
