package mysql_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// TestWriteTexts writes the texts for many batches, and the schema, into the file that
// HEADGATE_TEST_TEXTS names. Two such files, written with one HEADGATE_TEST_SEED, show
// whether a change of the code changes the texts.
func TestWriteTexts(t *testing.T) {
	name := os.Getenv("HEADGATE_TEST_TEXTS")
	if name == "" {
		t.Skip("HEADGATE_TEST_TEXTS names no file")
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := &textWriter{Writer: bufio.NewWriter(f)}
	fmt.Fprintln(w, mysql.Schema())
	storetest.RunHistories(t, func(testing.TB) store.Store {
		w.Store = memory.New(nil)
		return w
	}, &storetest.Options{Histories: 800, Reservations: 20})
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		w.texts(randomBatch(rng))
	}
	for range 300 {
		w.texts(randomPlainBatch(rng))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d batches, of which the server would refuse %d", w.batches, w.empty)
}

// textWriter is a store that writes the texts of its batches.
type textWriter struct {
	store.Store
	*bufio.Writer
	batches, empty int
}

func (w *textWriter) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	w.texts(ops)
	return w.Store.Apply(ctx, ops, outs)
}

func (w *textWriter) texts(ops []law.Op) {
	list := mysql.Texts(ops)
	if w.batches++; len(list) == 0 {
		w.empty++
	}
	for i, text := range list {
		fmt.Fprintln(w, w.batches, i, text)
	}
}

// randomBatch is a batch of one kind, so that its statements take all forms: each
// value is the same in all ops, or differs.
func randomBatch(rng *rand.Rand) []law.Op {
	sizes := []int{1, 1, 2, 3, 6, 20, 20}
	if rng.IntN(50) == 0 {
		sizes = []int{511, 513, 700}
	}
	n, group, some := sizes[rng.IntN(len(sizes))], 1+rng.IntN(3), func() bool { return rng.IntN(4) == 0 }
	limits, keys := 1+rng.IntN(6)/3, 1+rng.IntN(n)*2
	verbs := []law.Verb{law.Take, law.Take, law.Take, law.Check, law.Return, law.Settle, law.Renew, law.Block, law.Reset}
	verb := verbs[rng.IntN(len(verbs))]
	all := []law.Params{
		{Kind: law.Bucket, Unit: 1000, Capacity: 50_000, Step: 1, Drain: 1},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 50_000, Step: 20_000, Drain: law.Max},
		{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 50_000, Step: 20_000, Drain: law.Max},
		{Kind: law.Window, Unit: 1000, Capacity: 50_000, Step: 10_000},
		{Kind: law.Log, Unit: 1000, Capacity: 50_000, Step: 10_000},
		{Kind: law.Log, Unit: 1000, Capacity: 50_000, Step: 10_000, History: 60_000},
		{Kind: law.Bucket, Unit: 1000, Capacity: 50_000, Step: 1, Drain: 1, Block: 5000},
	}
	kind := rng.IntN(len(all))
	mixed, mixedVerbs, ids, late, lateAll := some(), some(), some() || verb == law.Settle, some(), some()
	nows, costs, counts, partials, ceilings, ttls := some(), some(), some(), some(), some(), some()
	shared, notes := rng.IntN(12) == 0, some()
	at := func(varies bool, base, most int64) int64 {
		if varies {
			return base + rng.Int64N(most)
		}
		return base
	}
	var ops []law.Op
	for i := range n {
		if i%group == 0 && mixedVerbs {
			verb = verbs[rng.IntN(len(verbs))]
		}
		if mixed {
			kind = rng.IntN(len(all))
		}
		op := law.Op{
			Verb: verb, Group: uint32(i / group), Cell: law.Cell{Limit: fmt.Sprint("l", rng.IntN(limits)), Key: fmt.Sprint("k", rng.IntN(keys))},
			Params: all[kind], Cost: at(costs, 1000, 3), Count: at(counts, 1, 3), Now: at(nows, 1_000_000, 10),
		}
		if limits == 1 && keys > n && !mixed {
			op.Cell.Key = fmt.Sprint("k", i)
		}
		if shared && rng.IntN(2) == 0 {
			op.Cell = law.SharedCell(op.Cell.Limit, 1+rng.Int64N(2))
		}
		if op.Params.Anchor == law.Calendar {
			op.Window = [4]int64{900_000, 950_000, 1_100_000, 1_200_000}
		}
		switch verb {
		case law.Take:
			op.Partial = partials && rng.IntN(2) == 0
			if op.Ceiling = 0; ceilings {
				op.Ceiling = at(true, 10_000, 5)
			}
			if ids {
				op.ID, op.TTL = fmt.Sprint("id", i/group), at(ttls, 60_000_000, 3)
				op.Partial, op.Ceiling = false, 0
			}
			if op.Params.Kind == law.Bucket && op.Params.Anchor != law.Calendar && (lateAll || late && rng.IntN(2) == 0) {
				op.Deferred, op.Partial, op.Ceiling = true, false, 0
			}
			if op.Params.Kind == law.Log && op.Params.History > 0 && !ids {
				op.ID = ""
			}
		case law.Return, law.Renew:
			op.EntryNumber, op.At, op.Level = at(some(), 5, 10), at(some(), 900_000, 10), at(some(), 1000, 10)
			if verb == law.Renew {
				op.Params = all[4]
			}
			if some() && verb == law.Return {
				op.Cost = -op.Cost
			}
		case law.Settle:
			op.ID = fmt.Sprint("id", i/group)
			op.Count, op.Now = 1, 1_000_000
		case law.Block:
			op.TTL = at(ttls, 1000, 10)
			if op.Reason = "reason"; notes {
				op.Reason = fmt.Sprint("reason ", i)
			}
		}
		ops = append(ops, op)
	}
	return ops
}

// randomPlainBatch is a batch of charges of buckets, each of a cell of its own.
func randomPlainBatch(rng *rand.Rand) (ops []law.Op) {
	nows, costs, counts, partials, ceilings := rng.IntN(2), rng.IntN(2), rng.IntN(2), rng.IntN(2), rng.IntN(2)
	limits, anchor := 1+rng.IntN(5), law.Anchor(rng.IntN(2))
	for i := range 1 + rng.IntN(30) {
		limit := rng.IntN(limits)
		ops = append(ops, law.Op{
			Verb: law.Take, Group: uint32(i), Cell: law.Cell{Limit: fmt.Sprint("l", limit), Key: fmt.Sprint("k", i)},
			Params: law.Params{Kind: law.Bucket, Anchor: anchor, Unit: 1000, Capacity: 50_000, Step: 1 + int64(limit), Drain: 1},
			Cost:   1000 + rng.Int64N(3)*int64(costs), Count: 1 + rng.Int64N(3)*int64(counts), Now: 1_000_000 + rng.Int64N(10)*int64(nows),
			Partial: partials*rng.IntN(2) == 1, Ceiling: int64(ceilings) * rng.Int64N(40_000),
		})
	}
	return ops
}
