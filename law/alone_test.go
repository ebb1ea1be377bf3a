package law_test

import (
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestPlainAndAlone changes a plain take in one way at a time, and checks what Op.Plain and Op.Alone return.
func TestPlainAndAlone(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		change               func(op *law.Op)
		wantPlain, wantAlone bool
	}{
		{"a take", func(*law.Op) {}, true, true},
		{"of another cell", func(op *law.Op) { op.Cell.Key = "other" }, true, true},
		{"of another group", func(op *law.Op) { op.Group = 7 }, true, true},
		{"of another cost", func(op *law.Op) { op.Cost = 5 }, true, true},
		{"under another law", func(op *law.Op) { op.Params = law.Params{Kind: law.Log, History: 1} }, true, true},
		{"at a test time", func(op *law.Op) { op.Now = 1 }, true, true},
		{"with a window", func(op *law.Op) { op.Window[3] = 1 }, true, true},
		{"of count 2", func(op *law.Op) { op.Count = 2 }, false, true},
		{"partial", func(op *law.Op) { op.Partial = true }, false, true},
		{"with a ceiling", func(op *law.Op) { op.Ceiling = 1 }, false, true},
		{"a check", func(op *law.Op) { op.Verb = law.Check }, false, true},
		{"a return", func(op *law.Op) { op.Verb = law.Return }, false, true},
		{"with an ID", func(op *law.Op) { op.ID, op.TTL = "id", 1 }, false, false},
		{"deferred", func(op *law.Op) { op.Deferred = true }, false, false},
		{"a settlement", func(op *law.Op) { op.Verb, op.ID = law.Settle, "id" }, false, false},
	} {
		op := law.Op{Verb: law.Take, Cost: 1, Count: 1, Cell: law.Cell{Limit: "limit", Key: "key"}}
		if tt.change(&op); op.Plain() != tt.wantPlain || op.Alone() != tt.wantAlone {
			t.Errorf("%s: plain %v, alone %v; want %v, %v", tt.name, op.Plain(), op.Alone(), tt.wantPlain, tt.wantAlone)
		}
	}
}
