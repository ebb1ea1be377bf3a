package guard_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/guard"
)

// TestOneLineWhenTheStoreGoesAwayAndOneWhenItIsBack: the first has the reason, the second says after how long.
func TestOneLineWhenTheStoreGoesAwayAndOneWhenItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		p := &process{link: &link{distant: newDistant()}}
		p.guard = guard.New(p.link, &guard.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		defer p.guard.Close()
		p.limiter = headgate.New(p.guard, nil)
		goAway(t, p)
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if len(lines) != 4 {
			t.Fatalf("%d lines about two times that it was away: %s", len(lines), said.String())
		}
		for i, want := range []string{
			"the cable is cut", "after=10.6s answered_without_it=996", "the cable is cut", "after=10.6s answered_without_it=",
		} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("line %q, want %q in it", lines[i], want)
			}
		}
		// Ten callers failed together, any number of whom were answered before the line was written, or after it.
		_, count, _ := strings.Cut(lines[3], "answered_without_it=")
		if n, err := strconv.Atoi(count); err != nil || n < 991 || n > 1000 {
			t.Errorf("line %q, want a count from 991 to 1000 in it", lines[3])
		}
	})
}

// TestTurnedReplacesTheLogLines.
func TestTurnedReplacesTheLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		var turns []string
		p := &process{link: &link{distant: newDistant()}}
		p.guard = guard.New(p.link, &guard.Config{
			Logger: slog.New(slog.NewTextHandler(&said, nil)),
			Turned: func(err error) {
				text := "back"
				if err != nil {
					text = err.Error()
				}
				turns = append(turns, text)
			},
		})
		defer p.guard.Close()
		p.limiter = headgate.New(p.guard, nil)
		goAway(t, p)
		gone := errCut.Error()
		if want := []string{gone, "back", gone, "back"}; strings.Join(turns, ",") != strings.Join(want, ",") {
			t.Errorf("%q, want %q", turns, want)
		}
		if said.Len() > 0 {
			t.Errorf("it said %s", said.String())
		}
	})
}

// goAway cuts a store off twice, for 10.6 s, while ten callers ask every tenth of a second. The breaker
// opens at the fifth. The first time these ask one after the other, the second time all at once.
func goAway(t *testing.T, p *process) {
	limit := headgate.MustParse("token-bucket 1000/s away allow")
	for _, together := range []bool{false, true} {
		p.link.cut(errCut)
		for range 100 {
			var callers sync.WaitGroup
			for range 10 {
				callers.Go(func() {
					if _, err := p.limiter.Allow(t.Context(), limit, "k"); err != nil {
						t.Error(err)
					}
				})
				if !together {
					callers.Wait()
				}
			}
			callers.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		p.link.cut(nil)
		time.Sleep(600 * time.Millisecond)
		if d, err := p.limiter.Allow(t.Context(), limit, "k"); err != nil || d.Via != headgate.ViaStore {
			t.Errorf("after its return: %+v, %v", d, err)
		}
	}
}
