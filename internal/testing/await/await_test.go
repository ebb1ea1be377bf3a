package await

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestFunctionsReturnOnceTheConditionHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		minuteIsOver := func() bool { return time.Since(begin) >= time.Minute }
		Until(t, "a minute", minuteIsOver)
		if took := time.Since(begin); took > time.Minute+20*time.Millisecond {
			t.Errorf("Until took %v, want at most a minute and 20 ms", took)
		}
		begin = time.Now()
		NoError(t, "a minute", func() error {
			if !minuteIsOver() {
				return errors.New("not yet")
			}
			return nil
		})
		c := make(chan int, 1)
		time.AfterFunc(time.Minute, func() { c <- 7 })
		if got := Receive(t, "a number", c); got != 7 {
			t.Errorf("received %d, want 7", got)
		}
		close(c)
		if got := Receive(t, "the end", c); got != 0 {
			t.Errorf("received %d from a closed channel, want 0", got)
		}
	})
}

// recordingTB is a testing.TB that records whether the test failed.
type recordingTB struct {
	testing.TB
	failed bool
}

func (r *recordingTB) Helper() {}

func (r *recordingTB) Fatalf(string, ...any) {
	r.failed = true
	runtime.Goexit()
}

func TestFunctionsFailTheTestAfterPatience(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(testing.TB){
		"Until":   func(tb testing.TB) { Until(tb, "nothing", func() bool { return false }) },
		"NoError": func(tb testing.TB) { NoError(tb, "nothing", func() error { return errors.New("no") }) },
		"Receive": func(tb testing.TB) { Receive(tb, "nothing", make(chan int)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &recordingTB{TB: t}
			begin := time.Now()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				wait(r)
			}()
			<-ended
			if took := time.Since(begin); !r.failed || took < Patience || took > Patience+time.Second {
				t.Errorf("%s: got failed %v after %v, want true after %v", name, r.failed, took, Patience)
			}
		})
	}
}
