package tier

import (
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
