package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAnOverrideAndAPlanOnTwoServers gives a key a plan and an override by the command, while two servers are
// asked. Both have them within two seconds, and they end at the same microsecond of the store's clock.
func TestAnOverrideAndAPlanOnTwoServers(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	command(t, exitOK, "limits", "set", "login", "token-bucket 1000/s burst 1000000", "--store", url)
	command(t, exitOK, "plan", "define", "pro", "login=token-bucket 1000/s burst 2000000", "--store", url)
	dir := t.TempDir()
	servers := []*server{start(t, dir, "--store", url), start(t, dir, "--store", url)}
	const ask = `{"limit":"login","key":"bob"}`
	applied := func(i int, want string) func() bool {
		return func() bool {
			d, status, err := servers[i].take(http.DefaultClient, ask)
			return err == nil && status == http.StatusOK && d.Applied == want
		}
	}
	feel := func(what, want string) {
		t.Helper()
		begin := time.Now()
		for i, s := range servers {
			s.until(t, 5*time.Second, what, applied(i, want))
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%s was felt after %s", what, took)
		}
	}
	until := func(after time.Duration) (string, time.Time) {
		at := time.Now().Add(after).UTC()
		return at.Format(time.RFC3339Nano), at.Truncate(time.Microsecond)
	}
	text, planEnds := until(6 * time.Second)
	command(t, exitOK, "plan", "set", "bob", "pro", "--until", text, "--reason", "trial", "--store", url)
	feel("a plan", "plan pro")
	text, overrideEnds := until(3 * time.Second)
	command(t, exitOK, "override", "login", "bob", "token-bucket 1000/s burst 3000000", "--until", text,
		"--reason", "moves his mail", "--store", url)
	feel("an override", "override")

	type decision struct {
		at      int64
		applied string
	}
	var decisions [2][]decision
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			client := &http.Client{}
			for time.Now().Before(planEnds.Add(200 * time.Millisecond)) {
				d, status, err := s.take(client, ask)
				if err != nil || status != http.StatusOK {
					t.Errorf("status %d, %v", status, err)
					return
				}
				decisions[i] = append(decisions[i], decision{d.At, d.Applied})
			}
		})
	}
	wg.Wait()
	for i, list := range decisions {
		last := map[string]int64{}
		for _, d := range list {
			want := ""
			switch {
			case d.at < overrideEnds.UnixMicro():
				want = "override"
			case d.at < planEnds.UnixMicro():
				want = "plan pro"
			}
			if d.applied != want {
				t.Errorf("server %d: %q at %d us after the end of the override, want %q", i, d.applied,
					d.at-overrideEnds.UnixMicro(), want)
			}
			last[d.applied] = d.at
		}
		t.Logf("server %d: %d decisions; the last by the override %d us before its end, the last by the plan %d us before its end",
			i, len(list), overrideEnds.UnixMicro()-last["override"], planEnds.UnixMicro()-last["plan pro"])
		if len(last) != 3 {
			t.Errorf("server %d has decided by %v", i, last)
		}
	}
	history := command(t, exitOK, "limits", "history", "--store", url)
	for _, line := range []string{
		": trial\n  + plan of \"bob\" = pro until ", ": moves his mail\n  + override login of \"bob\" = token-bucket ",
	} {
		if !strings.Contains(history, line) || !strings.Contains(history, " as headgate") {
			t.Errorf("the history lacks %q, or the author:\n%s", line, history)
		}
	}
}
