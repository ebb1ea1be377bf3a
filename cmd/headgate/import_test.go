package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/open"
)

// newSQLiteURL makes a store in a new file, and returns its URL.
func newSQLiteURL(t *testing.T) string {
	t.Helper()
	url := "sqlite:" + filepath.Join(t.TempDir(), "headgate.db")
	runCommand(t, exitOK, "migrate", "--store", url)
	return url
}

// importStdin runs the command import with a text as the standard input.
func importStdin(t *testing.T, code int, text, storeURL string) string {
	t.Helper()
	var out bytes.Buffer
	args := []string{"import", "-", "--store", storeURL}
	if got := runMain(t.Context(), args, strings.NewReader(text), &out, &out); got != code {
		t.Fatalf("exit %d, %s; want %d", got, out.String(), code)
	}
	return out.String()
}

// admitted returns how many of 64 callers' requests pass, each of which asks for a key until it is refused.
func admitted(t *testing.T, s store.Store, limit headgate.Limit, most int64) int64 {
	t.Helper()
	l := headgate.New(s, nil)
	var passed atomic.Int64
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for passed.Load() < most {
				d, err := l.Allow(context.Background(), limit, "alice")
				if err != nil {
					t.Error(err)
					return
				}
				if !d.Allowed {
					return
				}
				passed.Add(1)
			}
		})
	}
	callers.Wait()
	return passed.Load()
}

// TestImportGivesNoSecondBurst drains keys in part under 64 callers, moves them to another store by export and import,
// twice, and drains the rest there: no algorithm passes more than its capacity in both stores together.
func TestImportGivesNoSecondBurst(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"csv", "jsonl"} {
		old, target := newSQLiteURL(t), newSQLiteURL(t)
		notations := []string{
			"token-bucket 300/30d notify 1%", "leaky-bucket 300/30d", "gcra 300/30d burst 300", "fixed-window 300/30d from-first",
			"sliding-window 300/30d", "sliding-log 300/30d",
		}
		passed := make([]int64, len(notations))
		drain := func(url string, most int64) {
			s, err := open.Store(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for i, n := range notations {
				passed[i] += admitted(t, s, headgate.MustParse(n), most)
			}
		}
		drain(old, 100)
		exported := runCommand(t, exitOK, "export", "--store", old, "-o", format)
		for range 2 {
			if out := importStdin(t, exitOK, exported, target); !strings.HasPrefix(out, "imported 6 of 6 keys") {
				t.Errorf("%s: got %q, want 6 keys", format, out)
			}
		}
		drain(target, 1000)
		for i, n := range notations {
			if passed[i] != 300 {
				t.Errorf("%s: %s passed %d in both stores, want 300", format, n, passed[i])
			}
		}
	}
}

// TestImportFromMemory moves a key from the memory of a server to a file.
func TestImportFromMemory(t *testing.T) {
	t.Parallel()
	target := newSQLiteURL(t)
	s := start(t, t.TempDir(), "--store", "memory:")
	runCommand(t, exitOK, "take", "5/1d", "alice", "--cost", "3", "--server", s.url)
	exported := runCommand(t, exitOK, "export", "--server", s.url)
	s.stop(t)
	importStdin(t, exitOK, exported, target)
	runCommand(t, exitRefused, "take", "5/1d", "alice", "--cost", "3", "--store", target)
	runCommand(t, exitOK, "take", "5/1d", "alice", "--cost", "2", "--store", target)
}

// TestImportMovesBlocks checks that a block lasts at least as long in the store to which it is moved.
func TestImportMovesBlocks(t *testing.T) {
	t.Parallel()
	old, target := newSQLiteURL(t), newSQLiteURL(t)
	runCommand(t, exitOK, "block", "mallory", "5/1m", "--for", "1h", "--reason", `guessing, "again"`, "--store", old)
	importStdin(t, exitOK, runCommand(t, exitOK, "export", "--store", old), target)
	out := runCommand(t, exitOK, "inspect", "mallory", "5/1m", "--store", target)
	if !strings.Contains(out, "blocked") || !strings.Contains(out, `guessing, \"again\"`) {
		t.Errorf("got %s; want the block and its reason", out)
	}
}

// TestImportFailsIfTheTargetDoesNotCount checks that a row is an error if a block or an override of the target keeps it
// from being charged.
func TestImportFailsIfTheTargetDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, obstacle := range map[string][]string{
		"block": {"block", "mallory", "api", "--for", "1h"},
		"0":     {"override", "mallory", "api", "0"},
	} {
		target := newSQLiteURL(t)
		runCommand(t, exitOK, "limits", "set", "api", "sliding-window 10/1d", "--store", target)
		runCommand(t, exitOK, append(obstacle, "--store", target)...)
		out := importStdin(t, exitError, `{"limit":"api","key":"mallory","used":7,"at":1}`+"\n", target)
		if !strings.Contains(out, "7 could not be charged") {
			t.Errorf("%s: got %q, want that 7 could not be charged", name, out)
		}
	}
}

// TestImportOfKeysWithOverrides moves a key whose override is slower than its limit: its use is that of the override.
func TestImportOfKeysWithOverrides(t *testing.T) {
	t.Parallel()
	old, target := newSQLiteURL(t), newSQLiteURL(t)
	for _, url := range []string{old, target} {
		runCommand(t, exitOK, "limits", "set", "api", "unlimited", "--store", url)
		runCommand(t, exitOK, "override", "vip", "api", "token-bucket 100/30d", "--store", url)
	}
	runCommand(t, exitOK, "take", "api", "vip", "--cost", "90", "--store", old)
	importStdin(t, exitOK, runCommand(t, exitOK, "export", "--store", old), target)
	runCommand(t, exitRefused, "take", "api", "vip", "--cost", "11", "--store", target)
	runCommand(t, exitOK, "take", "api", "vip", "--cost", "10", "--store", target)
}

// TestImportKeepsALongerBlock checks that a block of the target is not made shorter.
func TestImportKeepsALongerBlock(t *testing.T) {
	t.Parallel()
	target := newSQLiteURL(t)
	runCommand(t, exitOK, "block", "mallory", "5/1m", "--for", "10h", "--reason", "old", "--store", target)
	importStdin(t, exitOK, `{"limit":"5/1m","key":"mallory","used":0,"at":1,"blocked_until":5000001}`+"\n", target)
	if out := runCommand(t, exitOK, "inspect", "mallory", "5/1m", "--store", target); !strings.Contains(out, "old") {
		t.Errorf("got %s, want the block of 10 hours", out)
	}
}

// TestImportChecksAllRowsFirst gives import files with a row that it cannot import: it says which, and charges nothing.
func TestImportChecksAllRowsFirst(t *testing.T) {
	t.Parallel()
	header, good := strings.Join(keyColumns, ",")+"\n", "token-bucket 5/1m burst 5,alice,2,5,3,false,0,1,,,,\n"
	for name, tt := range map[string]struct{ text, want string }{
		"no export":     {"key,limit\n", "file"},
		"few columns":   {header + good + "a,b\n", "after 1 rows"},
		"unknown limit": {header + good + "nobody,bob,1,,,,,1,,,,\n", `"nobody"`},
		"cost":          {header + good + "5/1m,bob,much,,,,,1,,,,\n", "used"},
		"time":          {header + good + "5/1m,bob,1,,,,,soon,,,,\n", "after 1 rows"},
		"block":         {header + good + "5/1m,bob,1,,,,,1,,soon,,\n", "after 1 rows"},
		"line break":    {header + good + "5/1m,\"a\r\nb\",1,,,,,1,,,,\n", "-o jsonl"},
		"no time":       {`{"limit":"5/1m","key":"alice","used":2}` + "\n", "at"},
		"long block":    {`{"limit":"5/1m","key":"alice","used":2,"at":1,"blocked_until":9000000000000000}` + "\n", "blocked_until"},
		"long key":      {header + good + "5/1m," + strings.Repeat("k", 513) + ",1,,,,,1,,,,\n", "key"},
		"JSON":          {`{"limit":"5/1m","key":"alice","used":2,"at":1}` + "\n{\n", "line 2"},
	} {
		url := newSQLiteURL(t)
		if out := importStdin(t, exitError, tt.text, url); !strings.Contains(out, tt.want) {
			t.Errorf("%s: got %q, want %q", name, out, tt.want)
		}
		if out := runCommand(t, exitOK, "list", "--store", url); strings.Contains(out, "alice") {
			t.Errorf("%s: got %s; want no key", name, out)
		}
	}
}

// TestImportLeavesLeases imports a key that holds leases and is blocked: a lease can be released only where it was
// acquired, so only the block moves.
func TestImportLeavesLeases(t *testing.T) {
	t.Parallel()
	target := newSQLiteURL(t)
	const row = `{"limit":"concurrency 10 ttl 30s","key":"alice","used":2,"at":1,"blocked_until":3600000001}`
	out := importStdin(t, exitOK, "\xef\xbb\xbf"+row+"\n", target) // after a byte order mark
	if !strings.Contains(out, "imported 0 of 1 keys") || !strings.Contains(out, "1 keys hold leases") {
		t.Errorf("got %q", out)
	}
	out = runCommand(t, exitOK, "inspect", "alice", "concurrency 10 ttl 30s", "--store", target)
	if !strings.Contains(out, "blocked") {
		t.Errorf("got %s, want the block", out)
	}
}
