package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// engines has the engines that tests need, by the constant or function of package dbtest that they use.
var engines = map[string]string{
	"dbtest.GroupReplication": dbtest.GroupReplication, "dbtest.StartMySQLGroup": dbtest.GroupReplication,
	"dbtest.GaleraEngine": dbtest.GaleraEngine, "GaleraEngine": dbtest.GaleraEngine,
	"dbtest.Galera":          dbtest.GaleraEngine,
	"dbtest.PgBouncerEngine": dbtest.PgBouncerEngine, "dbtest.ClusterEngine": dbtest.ClusterEngine,
	"dbtest.TiDBEngine": dbtest.TiDBEngine,
}

var (
	testFunction = regexp.MustCompile(`(?ms)^func (Test\w+)\(.*?^}`)
	needsEngine  = regexp.MustCompile(`NeedEngine\(t, ([\w.]+|"[^"]+")\)|(dbtest\.Galera|dbtest\.StartMySQLGroup)\(`)
)

// TestEverySuiteRunsItsTests checks that each test that needs an engine is in the suite of that engine.
func TestEverySuiteRunsItsTests(t *testing.T) {
	t.Parallel()
	root, testCounts := os.DirFS("../../../.."), map[string]int{} // by engine
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if name := d.Name(); d.IsDir() && file != "." && (name == "testdata" || name == "bin" || name[0] == '.') {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, file)
		for _, function := range testFunction.FindAllSubmatch(text, -1) {
			match, test := needsEngine.FindSubmatch(function[0]), string(function[1])
			if match == nil {
				continue
			}
			name := strings.Trim(string(match[1])+string(match[2]), `"`)
			if engines[name] != "" {
				name = engines[name]
			}
			i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
			if i < 0 {
				t.Errorf("%s: %s: no suite %q", file, test, name)
				continue
			}
			testCounts[name]++
			if s := suites[i]; !slices.Contains(s.packages, "./"+path.Dir(file)) {
				t.Errorf("the suite %s does not have the package of %s: %s", s.name, test, file)
			} else if !regexp.MustCompile(s.run).MatchString(test) {
				t.Errorf("the suite %s does not run %s: %s", s.name, test, file)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("tests that need an engine: %v", testCounts)
	if len(testCounts) != 5 {
		t.Errorf("tests need %d engines, want five: %v", len(testCounts), testCounts)
	}
}

// TestUsualPackagesDependOnTheTier checks that usualPackages returns the packages whose tests make test skips in part.
func TestUsualPackagesDependOnTheTier(t *testing.T) {
	t.Parallel()
	packages, err := usualPackages(t.Context(), "../../../../...")
	if err != nil || len(packages) < 3 {
		t.Errorf("got %q, error %v; want three packages or more", packages, err)
	}
	for _, name := range []string{"store/sqlite", "store/front", "internal/testing/dbtest"} {
		if !slices.Contains(packages, "github.com/headgate/headgate/"+name) {
			t.Errorf("the tests of %s depend on the tier, but are not run: %q", name, packages)
		}
	}
}
