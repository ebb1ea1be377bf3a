package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// constants are the engines that tests name by a constant of package dbtest.
var constants = map[string]string{
	"GroupReplication": dbtest.GroupReplication, "GaleraEngine": dbtest.GaleraEngine,
	"PgBouncerEngine": dbtest.PgBouncerEngine, "ClusterEngine": dbtest.ClusterEngine,
	"TiDBEngine": dbtest.TiDBEngine,
}

// TestEveryTestIsRun: a test that make test skips is one of make nightly, which runs all tests, of a package that make
// engines runs on the usual servers, or of the suite of its engine.
func TestEveryTestIsRun(t *testing.T) {
	t.Parallel()
	const root = "../../../.."
	marked, err := tier.Scan(root)
	if err != nil {
		t.Fatal(err)
	}
	usualPackages, err := usualPackages(root)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, m := range marked {
		if m.Tier == tier.OfNightly.String() {
			count["nightly"]++
			continue
		}
		s := suite{name: usual, packages: usualPackages}
		if m.Tier == "" {
			name := m.Engine
			if constants[name] != "" {
				name = constants[name]
			}
			i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
			if i < 0 {
				t.Errorf("%s of %s: no suite %q", m.Name, m.Dir, name)
				continue
			}
			s = suites[i]
		}
		count[s.name]++
		if !slices.Contains(s.packages, "./"+m.Dir) {
			t.Errorf("the suite %s does not have the package of %s: ./%s", s.name, m.Name, m.Dir)
		}
		if run := regexp.MustCompile(s.run); !run.MatchString(m.Name) {
			t.Errorf("the suite %s of ./%s does not run %s", s.name, m.Dir, m.Name)
		}
	}
	t.Logf("tests that make test skips, by who runs them: %v", count)
	if len(marked) == 0 {
		t.Error("no test is marked")
	}
}
