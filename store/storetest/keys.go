package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// distinctKeys are keys that some databases take for the same, or that mean something in a language on the way to them.
var distinctKeys = []string{
	"", " ", "a", "A", "a ", " a", "a\t", "á", "a\u0301", "ß", "ss", "🚦", "🚥", "'", "''", `"`, `\`, `\\`, "%", "_",
	"{a}", "{}", "a:b", "a,b", "$1", "?", "--", ";", "null", "NULL", "0", "00", "\u200b", "\x01", "\n",
	strings.Repeat("k", law.MaxKey), strings.Repeat("k", law.MaxKey-1) + "K", strings.Repeat("é", law.MaxKey/2),
	`a' or '1'='1`, `x\' or 1=1 -- `, `"; drop table headgate_cells; --`, "縗' or 1=1 -- ", "¿' or 1=1;--", `¿\'`,
	"%27 ?", "@hg_out", "*/ x /*", "`x`", "\u2028", "a,b;c", ";1,2,3;", "|", strings.Repeat("\U0001F600", 100), "ſ",
	"\u212a", "k", "é", "e\u0301", "\x7f", "x'41'", "0x41", "{tag}", "a\r\n",
}

// RunKeys runs the suite's tests of keys on an empty store, for servers or connections whose settings matter to text.
func RunKeys(t *testing.T, s store.Store) {
	testKeys(t, s)
	testBadKeys(t, s)
	testTexts(t, s)
}

// testKeys charges keys that are easily confused. Each must have a cell of its own.
func testKeys(t *testing.T, s store.Store) {
	for _, p := range []law.Params{bucket(1, 1), slidingLog(1, hour)} {
		limit := fmt.Sprint("keys ", p.Kind)
		for _, want := range []int64{1, 0} { // the first charge of each key, then the second
			for _, k := range distinctKeys {
				if out := applyOne(t, s, take(limit, k, p, 1, T0)); out.Granted != want {
					t.Errorf("key %q: got %d granted, want %d", k, out.Granted, want)
				}
			}
		}
	}
	// One batch charges each key twice.
	var ops []law.Op
	for i, k := range distinctKeys {
		op := take("keys together", k, bucket(1, 1), 1, T0)
		op.Group = uint32(i)
		ops = append(ops, op, op)
		ops[len(ops)-1].Group = uint32(i + len(distinctKeys)) // another request than the op before
	}
	for i, out := range apply(t, s, ops...) {
		if want := int64(1 - i%2); out.Granted != want {
			t.Errorf("key %q, charge %d: got %d granted, want %d", ops[i].Cell.Key, i%2+1, out.Granted, want)
		}
	}
	// Limit and key must not be joined into one ambiguous string.
	if applyOne(t, s, take("a:b", "c", bucket(1, 1), 1, T0)).Granted != 1 ||
		applyOne(t, s, take("a", "b:c", bucket(1, 1), 1, T0)).Granted != 1 {
		t.Error(`("a:b", "c") was taken for ("a", "b:c")`)
	}
}

// testTexts takes, checks, blocks, settles and resets distinctKeys. Each is also the reason and, with a dot, the ID.
func testTexts(t *testing.T, s store.Store) {
	inspector, isInspector := store.As[store.Inspector](s)
	for _, p := range []law.Params{bucket(1, 2), slidingWindow(2, hour), slidingLog(2, hour)} {
		limit := fmt.Sprint("texts ", p.Kind)
		for _, k := range distinctKeys {
			id := k + "."
			for len(id) > law.MaxID { // shortened from the front, so that it stays valid UTF-8 and keeps its end
				_, size := utf8.DecodeRuneInString(id)
				id = id[size:]
			}
			op := func(verb law.Verb, change func(*law.Op)) law.Outcome {
				o := take(limit, k, p, 1, T0)
				o.Verb = verb
				if change != nil {
					change(&o)
				}
				return applyOne(t, s, o)
			}
			setID := func(o *law.Op) { o.ID, o.TTL = id, hour }
			if out, retry := op(law.Take, setID), op(law.Take, setID); out.Granted != 1 || !retry.Replayed ||
				retry.Granted != 1 {
				t.Errorf("%s: %q with its id: got %+v, then %+v", limit, k, out, retry)
			}
			if got := op(law.Check, nil); got.Granted != 1 || got.Used != 2*p.Unit {
				t.Errorf("%s: %q: check: got %+v", limit, k, got)
			}
			op(law.Block, func(o *law.Op) { o.TTL, o.Reason = hour, k })
			if got := op(law.Take, nil); got.Granted != 0 {
				t.Errorf("%s: %q: got %+v, want it blocked", limit, k, got)
			}
			if isInspector {
				expectInspected(t, inspector, law.Cell{Limit: limit, Key: k}, k, id, p.Kind == law.Log)
			}
			if got := op(law.Settle, func(o *law.Op) { o.ID, o.Cost = id, 0 }); got.Granted != p.Unit {
				t.Errorf("%s: %q: settle: got %+v", limit, k, got)
			}
			if got := op(law.Reset, nil); got.Granted != 1 {
				t.Errorf("%s: %q: reset: got %+v", limit, k, got)
			}
		}
	}
}

// expectInspected checks that an Inspector shows a cell, the reason of its block, and the ID in its log, if it has one.
func expectInspected(t *testing.T, i store.Inspector, cell law.Cell, reason, id string, hasLog bool) {
	t.Helper()
	ctx := context.Background()
	cells, _, err := i.Cells(ctx, store.Query{Limit: cell.Limit, Key: cell.Key, HasKey: true})
	if err != nil || len(cells) != 1 || cells[0].Cell != cell || cells[0].Reason != reason {
		t.Errorf("%q: got cells %+v, %v", cell, cells, err)
	}
	if _, _, err := i.Cells(ctx, store.Query{After: cell, Max: 1}); err != nil {
		t.Errorf("%q: cells after it: got %v, want no error", cell, err)
	}
	entries, err := i.Entries(ctx, cell, 9)
	if err != nil || (len(entries) == 1) != hasLog || len(entries) > 1 || hasLog && entries[0].ID != id {
		t.Errorf("%q: got entries %+v, %v; want one with the id %q: %t", cell, entries, err, id, hasLog)
	}
}

// testBadKeys takes, checks, blocks and resets keys that every store must refuse.
func testBadKeys(t *testing.T, s store.Store) {
	for _, k := range []string{"a\x00b", "\x00", "\xff", "a\xc3", strings.Repeat("k", law.MaxKey+1), "\xed\xa0\x80"} {
		for _, verb := range []law.Verb{law.Take, law.Check, law.Block, law.Reset} {
			op := take("bad", k, bucket(1, 1), 1, T0)
			op.Verb = verb
			if out := apply(t, s, op)[0]; !errors.Is(out.Err, store.ErrInvalid) || out.Granted != 0 {
				t.Errorf("key %q: got %+v, want an ErrInvalid", k, out)
			}
		}
	}
}

// testInvalidGroup applies a batch of which only the first and the last group are valid.
func testInvalidGroup(t *testing.T, s store.Store) {
	p := bucket(1, 5)
	op := func(group uint32, key string, change func(*law.Op)) law.Op {
		op := take("invalid", key, p, 1, T0)
		op.Group = group
		if change != nil {
			change(&op)
		}
		return op
	}
	ops := []law.Op{
		op(1, "a", nil),
		op(2, "a", nil), op(2, "b\x00", nil), // the valid op fails with the invalid one
		op(3, "a", func(op *law.Op) { op.Cost = 0 }),
		op(4, "a", func(op *law.Op) { op.Cost = law.Max; op.Count = 2 }),
		op(5, "a", func(op *law.Op) { op.Count = -1 }),
		op(6, "a", func(op *law.Op) { op.Params.Drain = 0 }),
		op(7, "a", func(op *law.Op) { op.Verb = 99 }),
		op(8, "a", nil), op(8, "a", func(op *law.Op) { op.Verb = law.Check }),
		op(1, "a", nil),
	}
	outs := apply(t, s, ops...)
	for i, out := range outs {
		isValid := i == 0 || i == len(ops)-1
		if isValid != (out.Err == nil) || !isValid && !errors.Is(out.Err, store.ErrInvalid) {
			t.Errorf("op %d: got error %v, want valid %t", i, out.Err, isValid)
		}
	}
	if got := outs[len(outs)-1].State.Level; got != 2*p.Unit {
		t.Errorf("got level %d after two valid takes, want %d", got, 2*p.Unit)
	}
}
