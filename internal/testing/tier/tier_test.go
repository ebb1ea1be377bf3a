package tier

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestSkips(t *testing.T) {
	for _, c := range []struct {
		env              string
		engines, nightly bool // whether such a test runs
	}{
		{"", false, false}, {"test", false, false}, {"engines", true, false}, {"nightly", true, true},
	} {
		t.Setenv(Env, c.env)
		runs := func(mark func(testing.TB)) (ran bool) {
			t.Run("marked", func(t *testing.T) {
				mark(t)
				ran = true
			})
			return ran
		}
		if got := runs(Engines); got != c.engines {
			t.Errorf("%s=%s: a test of make engines runs: %v", Env, c.env, got)
		}
		if got := runs(Nightly); got != c.nightly {
			t.Errorf("%s=%s: a test of make nightly runs: %v", Env, c.env, got)
		}
		want := 3
		if c.nightly {
			want = 20
		} else if c.engines {
			want = 7
		}
		if got := Pick(3, 7, 20); got != want {
			t.Errorf("%s=%s: picked %d, want %d", Env, c.env, got, want)
		}
	}
	t.Setenv(Env, "often")
	defer func() {
		if recover() == nil {
			t.Error("no panic for an unknown tier")
		}
	}()
	Current()
}

func TestScan(t *testing.T) {
	t.Parallel()
	const text = `package p
func TestA(t *testing.T) { tier.Nightly(t); f() }
func TestB(t *testing.T) { dbtest.NeedEngine(t, dbtest.GaleraEngine) }
func TestC(t *testing.T) { dbtest.NeedEngine(t, "mysql") }
func TestD(t *testing.T) { f() }
func TestE(t *testing.T) { f(); u := dbtest.Galera(t) }
`
	got, err := scanFile("p_test.go", []byte(text))
	want := []Marked{
		{Name: "TestA", Tier: "nightly"},
		{Name: "TestB", Engine: "GaleraEngine"},
		{Name: "TestC", Engine: "mysql"},
		{Name: "TestE", Engine: "GaleraEngine"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, misplaced := range []string{
		"package p\nfunc TestA(t *testing.T) { f(); tier.Engines(t) }",
		"package p\nfunc TestA(t *testing.T) { t.Run(\"\", func(t *testing.T) { tier.Engines(t) }) }",
		"package p\nfunc helper(t *testing.T) { tier.Engines(t) }",
	} {
		if _, err := scanFile("p_test.go", []byte(misplaced)); err == nil {
			t.Errorf("no error for %s", misplaced)
		}
	}
}
