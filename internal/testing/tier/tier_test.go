package tier

import (
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTiersSkipTestsAndPickValues(t *testing.T) {
	for _, c := range []struct {
		env              string
		engines, nightly bool // whether a test of make engines, or of make nightly, runs
	}{
		{"", false, false}, {"test", false, false}, {"engines", true, false}, {"nightly", true, true},
	} {
		t.Setenv(Env, c.env)
		isRun := func(skip func(testing.TB)) (ran bool) {
			t.Run("marked", func(t *testing.T) {
				skip(t)
				ran = true
			})
			return ran
		}
		if got := isRun(Engines); got != c.engines {
			t.Errorf("%s=%s: a test of make engines runs: got %v, want %v", Env, c.env, got, c.engines)
		}
		if got := isRun(Nightly); got != c.nightly {
			t.Errorf("%s=%s: a test of make nightly runs: got %v, want %v", Env, c.env, got, c.nightly)
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
