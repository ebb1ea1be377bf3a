package law_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// recordingStore is a store that records each batch that it decides, and a 32-bit hash of its outcomes.
type recordingStore struct {
	store.Store
	batches *[]string        // each batch with its outcomes, for error messages
	hashes  *strings.Builder // one hash a line
}

func (r recordingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := r.Store.Apply(ctx, ops, outs)
	h := fnv.New32a()
	for i := range outs {
		o := &outs[i]
		s := &o.State // false below stands for a field of the record that outcomes no longer have
		fmt.Fprintln(h, o.Granted, o.Used, o.Clock, o.RetryAt, o.StartAt, o.EntryNumber, o.Stale, o.Replayed, false,
			o.Err, s.Kind, s.Level, s.Prev, s.At, s.Unit, s.Step, s.EmptyAt, s.BlockedUntil)
	}
	fmt.Fprintf(r.hashes, "%08x\n", h.Sum32())
	*r.batches = append(*r.batches, fmt.Sprintf("ops %+v\noutcomes %+v", ops, outs))
	return err
}

// TestDecisionsEqualTheRecord compares the outcomes of some thousand batches, of every verb under every law, with the
// record in testdata. The cells in databases and the copies of the laws in PL/pgSQL, MySQL's SQL and Lua rely on these
// outcomes. If a law has to change, UPDATE_DECISIONS=1 writes a new record, and all copies have to be changed too.
func TestDecisionsEqualTheRecord(t *testing.T) {
	t.Setenv("HEADGATE_TEST_SEED", "20261126")
	var batches []string
	var hashes strings.Builder
	storetest.RunHistories(t, func(testing.TB) store.Store {
		return recordingStore{memory.New(&memory.Config{Clock: func() int64 { return start }}), &batches, &hashes}
	}, &storetest.Options{Histories: 2500})
	const path = "testdata/decisions.golden"
	if os.Getenv("UPDATE_DECISIONS") != "" {
		if err := os.WriteFile(path, []byte(hashes.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Fields(hashes.String()), strings.Fields(string(golden))
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("batch %d has outcomes that differ from the record:\n%s", i, batches[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d batches, want %d", len(got), len(want))
	}
}
