package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/migrated"
)

// twoServers has two servers over one store. The tests charge the key bob.
type twoServers struct {
	url     string
	servers []*server
}

const askForBob = `{"limit":"login","key":"bob"}`

// waitApplied waits until both servers decide by an override or plan. It reports whether they did so before its end.
func (s *twoServers) waitApplied(t *testing.T, what, want string, ends time.Time) (inTime bool) {
	t.Helper()
	inTime = true
	for _, srv := range s.servers {
		srv.waitUntil(t, what, func() bool {
			d, status, err := srv.take(http.DefaultClient, askForBob)
			if err != nil || status != http.StatusOK {
				return false
			}
			over := d.At >= ends.UnixMicro()
			inTime = inTime && !over
			return over || d.Applied == want
		})
	}
	return inTime
}

// TestAnOverrideAndAPlanOnTwoServers gives a key a plan and an override by the command, while two servers decide. Both
// servers apply them soon, and stop at the same microsecond of the store's clock.
func TestAnOverrideAndAPlanOnTwoServers(t *testing.T) {
	t.Parallel()
	url := migrated.Postgres(t)
	command(t, exitOK, "limits", "set", "login", "token-bucket 1000/s burst 1000000", "--store", url)
	command(t, exitOK, "plan", "define", "pro", "login=token-bucket 1000/s burst 2000000", "--store", url)
	dir := t.TempDir()
	s := &twoServers{url, []*server{startReady(t, dir, "--store", url), startReady(t, dir, "--store", url)}}
	// If the machine pauses for too long, repeat the test with an override and a plan that last longer.
	late := "all"
	for _, lasts := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 15 * time.Second, time.Minute} {
		if late = s.planAndOverride(t, lasts); late == "" || t.Failed() {
			break
		}
		t.Logf("with an override for %s: %s", lasts, late)
	}
	if late != "" {
		t.Error(late)
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

// planAndOverride gives the key an override for a time, and a plan for twice as long. late says what a pause of the
// machine has caused: one was applied after its end, or no request came before its end.
func (s *twoServers) planAndOverride(t *testing.T, lasts time.Duration) (late string) {
	t.Helper()
	until := func(after time.Duration) (string, time.Time) {
		at := time.Now().Add(after).UTC()
		return at.Format(time.RFC3339Nano), at.Truncate(time.Microsecond)
	}
	give := func(args ...string) (inTime bool) {
		t.Helper()
		var out bytes.Buffer
		code := runMain(t.Context(), append(args, "--store", s.url), nil, &out, &out)
		inTime = !strings.Contains(out.String(), "is over by the store's clock")
		if code != exitOK && inTime {
			t.Fatalf("%q: exit %d, %s", args, code, out.String())
		}
		return inTime
	}
	text, planEnds := until(2 * lasts)
	if !give("plan", "set", "bob", "pro", "--until", text, "--reason", "trial") {
		return "the plan was over before it was set"
	}
	if !s.waitApplied(t, "a plan", "plan pro", planEnds) {
		return "the plan was over before it was felt"
	}
	text, overrideEnds := until(lasts)
	if !give("override", "bob", "login", "token-bucket 1000/s burst 3000000", "--until", text, "--reason", "moves his mail") {
		return "the override was over before it was set"
	}
	if !s.waitApplied(t, "an override", "override", overrideEnds) {
		return "the override was over before it was felt"
	}

	type decision struct {
		at      int64
		applied string
	}
	decisions := make([][]decision, len(s.servers))
	var wg sync.WaitGroup
	for i, srv := range s.servers {
		wg.Go(func() {
			client := &http.Client{}
			for d := (api.Decision{}); d.At < planEnds.Add(50*time.Millisecond).UnixMicro(); {
				var status int
				var err error
				d, status, err = srv.take(client, askForBob)
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
			late = fmt.Sprintf("server %d has decided by %v", i, last)
		}
	}
	return late
}

// TestAnOverrideAtAServer gives a key another limit through a server, lists it, and removes it.
func TestAnOverrideAtAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := "sqlite:" + dir + "/h.db"
	command(t, exitOK, "migrate", "--store", file)
	command(t, exitOK, "limits", "set", "login", "fixed-window 2/1h from-first", "--store", file)
	s := startReady(t, dir, "--store", file)
	at := func(code int, args ...string) string {
		t.Helper()
		return command(t, code, append(append([]string{"override"}, args...), "--server", s.url)...)
	}
	out := at(exitOK, "bob", "login", "fixed-window 9/1h from-first", "--for", "1h", "--reason", "moves")
	if !strings.Contains(out, "the catalog has version 2 now") {
		t.Error(out)
	}
	for _, args := range [][]string{nil, {"--limit", "login"}, {"bob"}, {"bob", "login"}} {
		served, stored := at(exitOK, args...), command(t, exitOK, append([]string{"override", "--store", file}, args...)...)
		if served != stored || !strings.Contains(served, "fixed-window 9/1h from-first") || !strings.Contains(served, "moves") {
			t.Errorf("%q: the server\n%s\nthe store\n%s", args, served, stored)
		}
	}
	if out := at(exitOK, "alice", "login", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Error(out)
	}
	if out := at(exitOK, "bob", "login", "--remove"); !strings.Contains(out, "version 3 now") {
		t.Error(out)
	}
	at(exitError, "bob", "login", "--remove") // it has none
	if out := at(exitOK, "bob", "login", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Error(out)
	}
	at(exitError, "a", "login", "unlimited", "--prefix")
	at(exitError, "a", "login", "unlimited", "--remove")
	at(exitError, "bob", "nope", "unlimited")
}
