package leaktest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { Main(m) }

// suite stands for the tests of a package.
type suite func() int

func (s suite) Run() int { return s() }

func TestRunFailsIfGoroutinesAreLeft(t *testing.T) {
	stopGoroutine := make(chan struct{})
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for _, c := range []struct {
		name  string
		tests suite
		want  int
	}{
		{"nothing is left", func() int { return 0 }, 0},
		{"a goroutine ends soon", func() int { go func() {}(); return 0 }, 0},
		{"the tests fail", func() int { return 1 }, 1},
		{"the tests end with another status", func() int { return 3 }, 3},
		{"an idle connection is left", func() int {
			resp, err := http.Get(server.URL)
			if err != nil {
				t.Error(err)
				return 1
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return 0
		}, 0},
		{"a goroutine is left", func() int { go func() { <-stopGoroutine }(); return 0 }, 1},
	} {
		if got := run(c.tests, goleak.IgnoreCurrent()); got != c.want {
			t.Errorf("%s: status %d, want %d", c.name, got, c.want)
		}
	}
	close(stopGoroutine)
}
