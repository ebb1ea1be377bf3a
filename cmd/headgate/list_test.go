package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// fakeCellServer lists cells, page by page, as a server does, and counts the calls.
type fakeCellServer struct {
	cells []api.Status
	calls int
}

func (p *fakeCellServer) call(_ context.Context, _, _ string, in, out any) error {
	p.calls++
	q, page := in.(*api.CellsQuery), out.(*api.Cells)
	for _, c := range p.cells {
		after := c.Limit > q.AfterLimit || c.Limit == q.AfterLimit && c.Key > q.AfterKey
		if after && (q.Limit == "" || q.Limit == c.Limit) && len(page.Cells) < q.Max {
			page.Cells = append(page.Cells, c)
		}
	}
	return nil
}

// newFakeCellServer returns a server with n cells of the limit api, of which cell i has used i of n.
func newFakeCellServer(n int) *fakeCellServer {
	p := new(fakeCellServer)
	for i := range n {
		p.cells = append(p.cells, api.Status{
			Limit: "api", Key: fmt.Sprintf("k%06d", i), Used: json.Number(fmt.Sprint(i)), At: 1,
			Capacity: json.Number(fmt.Sprint(n)), Remaining: api.Number(int64(n-i), 0),
		})
	}
	return p
}

// TestStoredKeysReadsAllPages checks that storedKeys reads all pages, and with a prefix only the pages with it.
func TestStoredKeysReadsAllPages(t *testing.T) {
	p := newFakeCellServer(2*store.DefaultMax + 1)
	for _, tt := range []struct {
		prefix      string
		keys, pages int
	}{
		{"", 2*store.DefaultMax + 1, 3},
		{"k0019", 100, 1},
		{"k002000", 1, 1},
		{"k00200", 1, 1},
		{"j", 0, 1},
		{"l", 0, 1},
	} {
		p.calls = 0
		query := keyQuery{limit: "api", prefix: tt.prefix}
		keys, hasMore, err := query.storedKeys(t.Context(), backend{call: p.call}, law.Cell{}, 0)
		if err != nil || hasMore || len(keys) != tt.keys || p.calls != tt.pages {
			t.Errorf("%q: got %d keys of %d pages, want %d of %d; %v, %v", tt.prefix, len(keys), p.calls, tt.keys, tt.pages, hasMore, err)
		}
		query.limit = ""
		keys, _, err = query.storedKeys(t.Context(), backend{call: p.call}, law.Cell{}, 0)
		if err != nil || len(keys) != tt.keys {
			t.Errorf("%q of all limits: got %d keys, want %d; %v", tt.prefix, len(keys), tt.keys, err)
		}
	}
}

// TestAKeyIsRefusedBelowARemainingOf1 checks which keys --refusing lists: those to which a cost of 1 is refused.
func TestAKeyIsRefusedBelowARemainingOf1(t *testing.T) {
	for remaining, want := range map[json.Number]bool{
		"0": true, "0.5": true, "0.999999": true, "1": false, "2.5": false, "": false,
	} {
		if got := newKeyUse(&api.Status{Remaining: remaining, Used: "1", Capacity: "3"}); got.Refused != want {
			t.Errorf("remaining %q: got refused %t, want %t", remaining, got.Refused, want)
		}
	}
}

// TestSortedKeysKeepsTheLargest checks that sortedKeys returns the 7 keys of 1,500 with the highest percentages.
func TestSortedKeysKeepsTheLargest(t *testing.T) {
	p := newFakeCellServer(1500)
	list, total, err := new(keyQuery).sortedKeys(t.Context(), backend{call: p.call}, "percent", 7)
	if err != nil || total != 1500 || len(list) != 7 {
		t.Fatalf("got %d of %d keys, %v, want 7 of 1500", len(list), total, err)
	}
	for i, u := range list {
		if want := fmt.Sprintf("k%06d", 1499-i); u.Key != want {
			t.Errorf("key %d: got %s, want %s", i, u.Key, want)
		}
	}
}

// TestKeyBefore checks that keyBefore returns a valid key that sorts before all keys with the prefix.
func TestKeyBefore(t *testing.T) {
	for _, prefix := range []string{
		"a", " ", "\x01", "a\x7f", "ab\u0080", "\ue000", "\U00010000", "\U0010ffff", "é", "10.",
		strings.Repeat("k", 512),
	} {
		k := keyBefore(prefix)
		if err := (law.Cell{Key: k}).ValidText(); err != nil || k >= prefix || strings.HasPrefix(k, prefix) {
			t.Errorf("%q: got %q, %v", prefix, k, err)
		}
	}
}

func TestCursorRoundTrip(t *testing.T) {
	for _, c := range []law.Cell{{Limit: "api", Key: ""}, {Limit: "gcra 2/s burst 2", Key: "\x1b[2J 😀\n"}} {
		u := &keyUse{Status: api.Status{Limit: c.Limit, Key: c.Key}}
		if got, err := parseCursor(formatCursor(u)); err != nil || got != c {
			t.Errorf("got %v, %v, want %v", got, err, c)
		}
	}
	for _, text := range []string{"!", "YQ", "AAA", "/w"} {
		if got, err := parseCursor(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// TestFormatTableFitsTheTerminal checks the width of tables whose keys have control characters and wide letters.
func TestFormatTableFitsTheTerminal(t *testing.T) {
	var list []topRow
	for _, k := range []string{
		"a", "\x1b[2J\a\r\nx", strings.Repeat("😀", 128), strings.Repeat("k", 512), "<script>", "\u202eevil", "",
	} {
		u := newKeyUse(&api.Status{
			Limit: "token-bucket 5/1m burst 5", Key: k, Used: "5", Capacity: "5", Remaining: "0",
		})
		list = append(list, topRow{u, "12345678", curveBars + curveBars})
	}
	for _, width := range []int{1, 2, 20, 80, 200} {
		tables := slices.Concat(formatTable("keys", list, false, width), formatTable("keys", list, true, width))
		for _, line := range tables {
			got := textWidth(line)
			if got > width || strings.ContainsAny(line, "\x1b\a\r\n\u202e") {
				t.Errorf("got a line of width %d, want at most %d: %q", got, width, line)
			}
		}
	}
}

// TestTopShowsRecentDecisionsOfAServer checks the order, the figures and the curve, and that --all and filters by
// state read the store. The audit of the same server lists a reset and a block.
func TestTopShowsRecentDecisionsOfAServer(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "--store", "memory:")
	run := func(args ...string) string {
		t.Helper()
		var out, stderr bytes.Buffer
		if code := runMain(t.Context(), append(args, "--server", s.url), strings.NewReader(""), &out, &stderr); code == exitError {
			t.Fatalf("%q: exit %d, %s", args, code, stderr.String())
		}
		return out.String()
	}
	if out := run("top", "--count", "1"); !strings.Contains(out, "a second: 0.0 admitted, 0.0 refused, 0.0 failed") {
		t.Errorf("before all decisions: got %s, want rates of 0", out)
	}
	for range 3 {
		run("take", "fixed-window 2/1h from-first", "mallory")
	}
	run("take", "fixed-window 9/1h from-first", "alice", "--cost", "4")
	run("take", "fixed-window 9/1h from-first", "bob")
	// The rates may vary, since the machine may pause between two decisions.
	want := []string{
		`a second: 0\.[0-4] admitted, 0\.[01] refused, 0\.0 failed$`,
		`^KEY +LIMIT +%  RETRY AFTER .* REFUSED  2 MINUTES$`,
		`^mallory +fixed-window 2/1h from-first +100  (1 h|5[0-9] min.*) +2 of 2 +1 +[▁-█ ]*█[▁-█ ]*$`,
		`^alice +fixed-window 9/1h from-first +44  now +4 of 9 +0 +[▁-█ ]*█[▁-█ ]*$`,
		`^bob +fixed-window 9/1h from-first +11  now +1 of 9 +0 +[▁-█ ]*█[▁-█ ]*$`,
	}
	// The server counts whole seconds, so all figures are there when the last second is over.
	await.NoError(t, "the recent decisions", func() error {
		out := run("top", "--count", "1")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != len(want) {
			return fmt.Errorf("%d lines, want %d:\n%s", len(lines), len(want), out)
		}
		for i, pattern := range want {
			if !regexp.MustCompile(pattern).MatchString(lines[i]) {
				return fmt.Errorf("%q, want %s", lines[i], pattern)
			}
		}
		return nil
	})
	for _, args := range [][]string{{"--prefix", "ali"}, {"--max", "1"}, {"fixed-window 2/1h from-first"}} {
		out := run(append([]string{"top", "--count", "1"}, args...)...)
		if n := strings.Count(out, "1h from-first"); n != 1 {
			t.Errorf("%q: got %d keys, want 1:\n%s", args, n, out)
		}
	}
	run("block", "eve", "fixed-window 9/1h from-first", "--for", "1h", "--reason", "reads every page")
	run("reset", "bob", "fixed-window 9/1h from-first")
	audit := regexp.MustCompile(`^20\S+ \S+ UTC  reset fixed-window 9/1h from-first bob\n` +
		`20\S+ \S+ UTC  block fixed-window 9/1h from-first eve for 1 h: reads every page\n$`)
	if out := run("audit"); !audit.MatchString(out) {
		t.Errorf("audit: got %s, want %s", out, audit)
	}
	if out := run("audit", "--key", "eve"); strings.Contains(out, "bob") || !strings.Contains(out, "eve") {
		t.Errorf("audit of eve: got %s", out)
	}
	for _, flag := range []string{"--all", "--refusing", "--blocked"} {
		if out := run("top", "--count", "1", flag); !strings.Contains(out, "keys: ") {
			t.Errorf("%s: got %s, want a table of keys", flag, out)
		}
	}
}

// TestExportsOfServerAndStoreAreEqual checks that exports through a server and from its store have equal rows.
func TestExportsOfServerAndStoreAreEqual(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := "sqlite:" + filepath.Join(dir, "h.db")
	s := start(t, dir, "--store", file)
	run := func(args ...string) string {
		t.Helper()
		var out, stderr bytes.Buffer
		if code := runMain(t.Context(), args, strings.NewReader(""), &out, &stderr); code == exitError {
			t.Fatalf("%q: exit %d, %s", args, code, stderr.String())
		}
		return out.String()
	}
	const limit = "sliding-log 2/1h history 1d"
	for _, key := range []string{"alice", "alice", "alice", "bob", "carol\x1b[2J"} {
		run("take", limit, key, "--server", s.url)
	}
	rows := func(text string) (list []string) { // without the fields that depend on the time
		for line := range strings.Lines(text) {
			var row struct {
				Key, Answer  string
				Used         json.Number
				Percent      float64
				Refused      bool
				Number, Cost json.Number
			}
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			list = append(list, fmt.Sprint(row))
		}
		return list
	}
	for _, args := range [][]string{
		{"export", "-o", "jsonl"},
		{"export", limit, "-o", "jsonl", "--refusing"},
		{"export", "--history", "-o", "jsonl"},
	} {
		stored, served := run(append(args, "--store", file)...), run(append(args, "--server", s.url)...)
		if got, want := rows(served), rows(stored); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%q: got %q from the server, want %q as from the store", args, got, want)
		}
	}
	for _, args := range [][]string{
		{"list", "--refusing"},
		{"list", "--max", "1"},
		{"list", "--prefix", "al", limit},
		{"top", "--count", "1"},
		{"top", "--all", "--count", "1"},
		{"history", "alice", limit},
	} {
		out := run(append(args, "--server", s.url)...)
		if want := "alice"; args[0] != "history" && !strings.Contains(out, want) || strings.Contains(out, "\x1b") {
			t.Errorf("%q: got %q, want alice and no control characters", args, out)
		}
	}
	if out := run("history", "alice", limit, "--server", s.url); strings.Count(out, "allowed") != 2 ||
		strings.Count(out, "refused") != 1 {
		t.Errorf("history of alice: got %s, want 2 allowed and 1 refused", out)
	}
}
