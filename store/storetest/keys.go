package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// keys that some database or other takes for one another.
var distinct = []string{
	"", " ", "a", "A", "a ", " a", "a\t", "á", "a\u0301", "ß", "ss", "🚦", "🚥", "'", "''", `"`, `\`, `\\`, "%", "_",
	"{a}", "{}", "a:b", "a,b", "$1", "?", "--", ";", "null", "NULL", "0", "00", "\u200b", "\x01", "\n",
	strings.Repeat("k", law.MaxKey), strings.Repeat("k", law.MaxKey-1) + "K", strings.Repeat("é", law.MaxKey/2),
}

func keys(t *testing.T, s store.Store) {
	p := slidingLog(1, 3_600_000_000)
	for _, law1 := range []law.Params{bucket(1, 1), p} {
		limit := fmt.Sprint("keys ", law1.Kind)
		for _, k := range distinct {
			if out := one(t, s, take(limit, k, law1, 1, T0)); out.Granted != 1 {
				t.Errorf("key %q was taken for another", k)
			}
		}
		for _, k := range distinct {
			if out := one(t, s, take(limit, k, law1, 1, T0)); out.Granted != 0 {
				t.Errorf("key %q was forgotten", k)
			}
		}
	}
	// All of them in one batch.
	var ops []law.Op
	for i, k := range distinct {
		op := take("keys together", k, bucket(1, 1), 1, T0)
		op.Group = uint32(i)
		ops = append(ops, op, op)
		ops[len(ops)-1].Group = uint32(i + len(distinct)*2)
	}
	for i, out := range apply(t, s, ops...) {
		if want := int64(1 - i%2); out.Granted != want {
			t.Errorf("key %q, time %d: granted %d, want %d", ops[i].Cell.Key, i%2+1, out.Granted, want)
		}
	}
	// The limit and the key are not one string.
	if one(t, s, take("a:b", "c", bucket(1, 1), 1, T0)).Granted != 1 || one(t, s, take("a", "b:c", bucket(1, 1), 1, T0)).Granted != 1 {
		t.Error(`("a:b", "c") was taken for ("a", "b:c")`)
	}
}

func badKeys(t *testing.T, s store.Store) {
	for _, k := range []string{"a\x00b", "\x00", "\xff", "a\xc3", strings.Repeat("k", law.MaxKey+1), "\xed\xa0\x80"} {
		for _, verb := range []law.Verb{law.Take, law.Check, law.Block, law.Reset} {
			op := take("bad", k, bucket(1, 1), 1, T0)
			op.Verb = verb
			if out := apply(t, s, op)[0]; !errors.Is(out.Err, store.ErrInvalid) || out.Granted != 0 {
				t.Errorf("key %q: %+v, want an ErrInvalid", k, out)
			}
		}
	}
}

func invalidGroup(t *testing.T, s store.Store) {
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
		op(2, "a", nil), op(2, "b\x00", nil), // the good half fails with the bad one
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
		good := i == 0 || i == len(ops)-1
		if good != (out.Err == nil) || !good && !errors.Is(out.Err, store.ErrInvalid) {
			t.Errorf("op %d: %v", i, out.Err)
		}
	}
	if got := outs[len(outs)-1].State.Level; got != 2*p.Unit {
		t.Errorf("level %d after two valid takes, want %d", got, 2*p.Unit)
	}
}
