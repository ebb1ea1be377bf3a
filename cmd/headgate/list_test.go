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

// cellPages is a server that lists cells, page by page.
type cellPages struct {
	cells []api.Status
	calls int
}

func (p *cellPages) call(_ context.Context, _, _ string, in, out any) error {
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

func someCells(n int) *cellPages {
	p := new(cellPages)
	for i := range n {
		left := api.Number(int64(n-i), 0)
		p.cells = append(p.cells, api.Status{
			Limit: "api", Key: fmt.Sprintf("k%06d", i), Used: json.Number(fmt.Sprint(i)), At: 1,
			Capacity: json.Number(fmt.Sprint(n)), Remaining: left,
		})
	}
	return p
}

// TestAListReadsAllPages: with a prefix it reads only the pages with that prefix.
func TestAListReadsAllPages(t *testing.T) {
	p := someCells(2*store.DefaultMax + 1)
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
		l := keyQuery{limit: "api", prefix: tt.prefix}
		list, more, err := l.storedKeys(t.Context(), backend{call: p.call}, law.Cell{}, 0)
		if err != nil || more || len(list) != tt.keys || p.calls != tt.pages {
			t.Errorf("%q: %d keys of %d pages, %v, %v", tt.prefix, len(list), p.calls, more, err)
		}
		l.limit = ""
		list, _, err = l.storedKeys(t.Context(), backend{call: p.call}, law.Cell{}, 0)
		if err != nil || len(list) != tt.keys {
			t.Errorf("%q of all limits: %d keys, %v", tt.prefix, len(list), err)
		}
	}
}

// TestSortedKeysKeepsTheLargest lists more keys than are held in memory.
func TestSortedKeysKeepsTheLargest(t *testing.T) {
	p := someCells(1500)
	list, total, err := new(keyQuery).sortedKeys(t.Context(), backend{call: p.call}, "percent", 7)
	if err != nil || total != 1500 || len(list) != 7 {
		t.Fatalf("%d of %d, %v", len(list), total, err)
	}
	for i, u := range list {
		if want := fmt.Sprintf("k%06d", 1499-i); u.Key != want {
			t.Errorf("%d: %s, want %s", i, u.Key, want)
		}
	}
}

// TestKeyBeforeAPrefix: the key is valid, and sorts before all keys with the prefix.
func TestKeyBeforeAPrefix(t *testing.T) {
	for _, prefix := range []string{
		"a", " ", "\x01", "a\x7f", "ab\u0080", "\ue000", "\U00010000", "\U0010ffff", "é", "10.",
		strings.Repeat("k", 512),
	} {
		k := keyBefore(prefix)
		if err := (law.Cell{Key: k}).ValidText(); err != nil || k >= prefix || strings.HasPrefix(k, prefix) {
			t.Errorf("%q: %q, %v", prefix, k, err)
		}
	}
}

func TestCursorRoundTrip(t *testing.T) {
	for _, c := range []law.Cell{{Limit: "api", Key: ""}, {Limit: "gcra 2/s burst 2", Key: "\x1b[2J 😀\n"}} {
		u := &keyUse{Status: api.Status{Limit: c.Limit, Key: c.Key}}
		if got, err := parseCursor(formatCursor(u)); err != nil || got != c {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	for _, text := range []string{"!", "YQ", "AAA", "/w"} {
		if got, err := parseCursor(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestATableIsAsWideAsTheTerminal draws keys with control characters and wide letters.
func TestATableIsAsWideAsTheTerminal(t *testing.T) {
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
			wide := textWidth(line)
			if wide > width || strings.ContainsAny(line, "\x1b\a\r\n\u202e") {
				t.Errorf("%d wide of %d: %q", wide, width, line)
			}
		}
	}
}

// TestTopShowsWhatAServerHasDecidedLately checks the order, the figures and the curve, and that --all and filters by
// state read the store. The audit of the same server lists what was done by hand.
func TestTopShowsWhatAServerHasDecidedLately(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "--store", "memory:")
	command := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := runMain(t.Context(), append(args, "--server", s.url), strings.NewReader(""), &out, &errs); code == exitError {
			t.Fatalf("%q: exit %d, %s", args, code, errs.String())
		}
		return out.String()
	}
	if out := command("top", "--count", "1"); !strings.Contains(out, "a second: 0.0 admitted, 0.0 refused, 0.0 failed") {
		t.Errorf("before all decisions: %s", out)
	}
	for range 3 {
		command("take", "fixed-window 2/1h from-first", "mallory")
	}
	command("take", "fixed-window 9/1h from-first", "alice", "--cost", "4")
	command("take", "fixed-window 9/1h from-first", "bob")
	// The rates may vary, since the machine may pause between two decisions.
	want := []string{
		`a second: 0\.[0-4] admitted, 0\.[01] refused, 0\.0 failed$`,
		`^KEY +LIMIT +%  RETRY AFTER .* REFUSED  2 MINUTES$`,
		`^mallory +fixed-window 2/1h from-first +100  (1 h|5[0-9] min.*) +2 of 2 +1 +[▁-█ ]*█[▁-█ ]*$`,
		`^alice +fixed-window 9/1h from-first +44  now +4 of 9 +0 +[▁-█ ]*█[▁-█ ]*$`,
		`^bob +fixed-window 9/1h from-first +11  now +1 of 9 +0 +[▁-█ ]*█[▁-█ ]*$`,
	}
	// The server counts whole seconds, so all figures are there when the last second is over.
	await.NoError(t, "what was decided", func() error {
		out := command("top", "--count", "1")
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
		out := command(append([]string{"top", "--count", "1"}, args...)...)
		if n := strings.Count(out, "1h from-first"); n != 1 {
			t.Errorf("%q: %d keys:\n%s", args, n, out)
		}
	}
	command("block", "eve", "fixed-window 9/1h from-first", "--for", "1h", "--reason", "reads every page")
	command("reset", "bob", "fixed-window 9/1h from-first")
	audit := regexp.MustCompile(`^20\S+ \S+ UTC  reset fixed-window 9/1h from-first bob\n` +
		`20\S+ \S+ UTC  block fixed-window 9/1h from-first eve for 1 h: reads every page\n$`)
	if out := command("audit"); !audit.MatchString(out) {
		t.Error(out)
	}
	if out := command("audit", "--key", "eve"); strings.Contains(out, "bob") || !strings.Contains(out, "eve") {
		t.Error(out)
	}
	for _, flag := range []string{"--all", "--refusing", "--blocked"} {
		if out := command("top", "--count", "1", flag); !strings.Contains(out, "keys: ") {
			t.Errorf("%s: %s", flag, out)
		}
	}
}

// TestAServerListsWhatItsStoreDoes compares the output of commands over a server and over its store.
func TestAServerListsWhatItsStoreDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := "sqlite:" + filepath.Join(dir, "h.db")
	s := start(t, dir, "--store", file)
	command := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := runMain(t.Context(), args, strings.NewReader(""), &out, &errs); code == exitError {
			t.Fatalf("%q: exit %d, %s", args, code, errs.String())
		}
		return out.String()
	}
	const limit = "sliding-log 2/1h history 1d"
	for _, key := range []string{"alice", "alice", "alice", "bob", "carol\x1b[2J"} {
		command("take", limit, key, "--server", s.url)
	}
	rows := func(text string) (list []string) { // without what depends on the time
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
		stored, served := command(append(args, "--store", file)...), command(append(args, "--server", s.url)...)
		if a, b := rows(stored), rows(served); len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("%q: the store %q, the server %q", args, a, b)
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
		out := command(append(args, "--server", s.url)...)
		if want := "alice"; args[0] != "history" && !strings.Contains(out, want) || strings.Contains(out, "\x1b") {
			t.Errorf("%q: %q", args, out)
		}
	}
	if out := command("history", "alice", limit, "--server", s.url); strings.Count(out, "allowed") != 2 ||
		strings.Count(out, "refused") != 1 {
		t.Error(out)
	}
}
