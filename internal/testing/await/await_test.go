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

func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		after := func() bool { return time.Since(begin) >= time.Minute }
		Until(t, "a minute", after)
		if took := time.Since(begin); took > time.Minute+20*time.Millisecond {
			t.Errorf("Until took %v", took)
		}
		begin = time.Now()
		NoError(t, "a minute", func() error {
			if !after() {
				return errors.New("not yet")
			}
			return nil
		})
		c := make(chan int, 1)
		time.AfterFunc(time.Minute, func() { c <- 7 })
		if got := Receive(t, "a number", c); got != 7 {
			t.Errorf("received %d", got)
		}
		close(c)
		if got := Receive(t, "the end", c); got != 0 {
			t.Errorf("received %d of a closed channel", got)
		}
	})
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	runtime.Goexit()
}

func TestFails(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(testing.TB){
		"Until":   func(tb testing.TB) { Until(tb, "nothing", func() bool { return false }) },
		"NoError": func(tb testing.TB) { NoError(tb, "nothing", func() error { return errors.New("no") }) },
		"Receive": func(tb testing.TB) { Receive(tb, "nothing", make(chan int)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &failing{TB: t}
			begin := time.Now()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				wait(f)
			}()
			<-ended
			if took := time.Since(begin); !f.failed || took < Patience || took > Patience+time.Second {
				t.Errorf("%s: failed %v after %v", name, f.failed, took)
			}
		})
	}
}
