package headgatetest_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
)

// A login form takes three attempts a minute. Its test needs no minute.
func ExampleRun() {
	login := headgate.MustParse("fixed-window 3/1m")
	_ = func(t *testing.T) { // in a test file: func TestLogin(t *testing.T) {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			for i := range 4 {
				d, err := l.Allow(t.Context(), login, "alice")
				if err != nil || d.Allowed != (i < 3) {
					t.Errorf("attempt %d: %+v, %v", i, d, err)
				}
			}
			headgatetest.Advance(time.Minute)
			if d, err := l.Allow(t.Context(), login, "alice"); err != nil || !d.Allowed {
				t.Errorf("a minute later: %+v, %v", d, err)
			}
		})
	}
}
