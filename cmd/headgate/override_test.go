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

// twoServers has two servers over one store. The test charges the key bob.
type twoServers struct {
	url     string
	servers []*server
}

const bobRequest = `{"limit":"login","key":"bob"}`

// waitUntilApplied waits until both servers decide by an override or plan, and reports whether they did before its end.
func (s *twoServers) waitUntilApplied(t *testing.T, what, wantApplied string, ends time.Time) (inTime bool) {
	t.Helper()
	inTime = true
	for _, srv := range s.servers {
		srv.waitUntil(t, what, func() bool {
			d, status, err := srv.take(http.DefaultClient, bobRequest)
			if err != nil || status != http.StatusOK {
				return false
			}
			isOver := d.At >= ends.UnixMicro()
			inTime = inTime && !isOver
			return isOver || d.Applied == wantApplied
		})
	}
	return inTime
}

// TestOverrideAndPlanEndAtBothServers gives a key a plan and an override by the command, while two servers decide. Both
// servers apply them soon, and stop at the same microsecond of the store's clock.
func TestOverrideAndPlanEndAtBothServers(t *testing.T) {
	t.Parallel()
	url := migrated.Postgres(t)
	runCommand(t, exitOK, "limits", "set", "login", "token-bucket 1000/s burst 1000000", "--store", url)
	runCommand(t, exitOK, "plan", "define", "pro", "login=token-bucket 1000/s burst 2000000", "--store", url)
	dir := t.TempDir()
	s := &twoServers{url, []*server{startReady(t, dir, "--store", url), startReady(t, dir, "--store", url)}}
	// If the machine pauses for too long, repeat the test with an override and a plan that last longer.
	var problem string
	for _, duration := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 15 * time.Second, time.Minute} {
		if problem = s.planAndOverride(t, duration); problem == "" || t.Failed() {
			break
		}
		t.Logf("with an override for %s: %s", duration, problem)
	}
	if problem != "" {
		t.Error(problem)
	}
	history := runCommand(t, exitOK, "limits", "history", "--store", url)
	for _, line := range []string{
		": trial\n  + plan of \"bob\" = pro until ", ": moves his mail\n  + override login of \"bob\" = token-bucket ",
	} {
		if !strings.Contains(history, line) || !strings.Contains(history, " as headgate") {
			t.Errorf("the history lacks %q, or the author:\n%s", line, history)
		}
	}
}

// planAndOverride gives the key a plan, and an override that lasts half as long, and checks by which of them servers
// decide until both are over. problem describes what a pause of the machine can cause: one of them decided no request.
func (s *twoServers) planAndOverride(t *testing.T, duration time.Duration) (problem string) {
	t.Helper()
	until := func(after time.Duration) (string, time.Time) {
		at := time.Now().Add(after).UTC()
		return at.Format(time.RFC3339Nano), at.Truncate(time.Microsecond)
	}
	run := func(args ...string) (inTime bool) {
		t.Helper()
		var out bytes.Buffer
		code := runMain(t.Context(), append(args, "--store", s.url), nil, &out, &out)
		inTime = !strings.Contains(out.String(), "is over by the store's clock")
		if code != exitOK && inTime {
			t.Fatalf("%q: exit %d, %s", args, code, out.String())
		}
		return inTime
	}
	text, planEnds := until(2 * duration)
	if !run("plan", "set", "bob", "pro", "--until", text, "--reason", "trial") {
		return "the plan was over before it was set"
	}
	if !s.waitUntilApplied(t, "a plan", "plan pro", planEnds) {
		return "the plan was over before a server applied it"
	}
	text, overrideEnds := until(duration)
	if !run("override", "bob", "login", "token-bucket 1000/s burst 3000000", "--until", text, "--reason", "moves his mail") {
		return "the override was over before it was set"
	}
	if !s.waitUntilApplied(t, "an override", "override", overrideEnds) {
		return "the override was over before a server applied it"
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
				d, status, err = srv.take(client, bobRequest)
				if err != nil || status != http.StatusOK {
					t.Errorf("got status %d, %v, want 200", status, err)
					return
				}
				decisions[i] = append(decisions[i], decision{d.At, d.Applied})
			}
		})
	}
	wg.Wait()
	for i, list := range decisions {
		lastTimes := map[string]int64{}
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
			lastTimes[d.applied] = d.at
		}
		t.Logf("server %d: %d decisions; the last by the override %d us before its end, the last by the plan %d us before its end",
			i, len(list), overrideEnds.UnixMicro()-lastTimes["override"], planEnds.UnixMicro()-lastTimes["plan pro"])
		if len(lastTimes) != 3 {
			problem = fmt.Sprintf("server %d has decided by %v", i, lastTimes)
		}
	}
	return problem
}

// TestOverrideCommandThroughAServer gives a key another limit through a server, lists it, and removes it.
func TestOverrideCommandThroughAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := "sqlite:" + dir + "/h.db"
	runCommand(t, exitOK, "migrate", "--store", file)
	runCommand(t, exitOK, "limits", "set", "login", "fixed-window 2/1h from-first", "--store", file)
	s := startReady(t, dir, "--store", file)
	runAtServer := func(code int, args ...string) string {
		t.Helper()
		return runCommand(t, code, append(append([]string{"override"}, args...), "--server", s.url)...)
	}
	out := runAtServer(exitOK, "bob", "login", "fixed-window 9/1h from-first", "--for", "1h", "--reason", "moves")
	if !strings.Contains(out, "the catalog has version 2 now") {
		t.Errorf("override: got %s, want version 2", out)
	}
	for _, args := range [][]string{nil, {"--limit", "login"}, {"bob"}, {"bob", "login"}} {
		served, stored := runAtServer(exitOK, args...), runCommand(t, exitOK, append([]string{"override", "--store", file}, args...)...)
		if served != stored || !strings.Contains(served, "fixed-window 9/1h from-first") || !strings.Contains(served, "moves") {
			t.Errorf("%q: got from the server\n%s\nwant as from the store\n%s", args, served, stored)
		}
	}
	if out := runAtServer(exitOK, "alice", "login", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("overrides of alice: got %s, want []", out)
	}
	if out := runAtServer(exitOK, "bob", "login", "--remove"); !strings.Contains(out, "version 3 now") {
		t.Errorf("override --remove: got %s, want version 3", out)
	}
	runAtServer(exitError, "bob", "login", "--remove") // bob has none
	if out := runAtServer(exitOK, "bob", "login", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("overrides of bob: got %s, want []", out)
	}
	runAtServer(exitError, "a", "login", "unlimited", "--prefix")
	runAtServer(exitError, "a", "login", "unlimited", "--remove")
	runAtServer(exitError, "bob", "nope", "unlimited")
}
