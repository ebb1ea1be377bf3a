package law_test

import (
	"errors"
	"math"
	"strconv"
	"testing"

	"github.com/headgate/headgate/law"
)

func TestSharedCellsAreKnownByTheirKeys(t *testing.T) {
	t.Parallel()
	for _, generation := range []int64{1, 2, 10, 4_102_444_800_000_000, law.Max} {
		c := law.SharedCell("api", generation)
		if c.Limit != "api" || law.Generation(c) != generation || !law.IsShared(c) {
			t.Errorf("generation %d: %q is taken for generation %d", generation, c.Key, law.Generation(c))
		}
	}
	for _, key := range []string{
		"", "1", "shared:1", "headgate:shared", "headgate:shared:", "headgate:shared:0", "headgate:shared:01",
		"headgate:shared:-1",
		"headgate:shared:+1", "headgate:shared:1 ", "headgate:shared:x", "headgate:shared:1.0", "Headgate:shared:1",
		" headgate:shared:1",
		"headgate:shared:" + strconv.FormatInt(law.Max+1, 10),
		"headgate:shared:" + strconv.FormatUint(math.MaxUint64, 10),
	} {
		if c := (law.Cell{Limit: "api", Key: key}); law.IsShared(c) {
			t.Errorf("key %q is taken for a shared cell", key)
		}
	}
}

func TestNobodyCanHaveTheKeyOfASharedCell(t *testing.T) {
	t.Parallel()
	for key, valid := range map[string]bool{
		"headgate:shared:1": false, "headgate:shared:": false, "headgate:shared:x": false,
		"headgate:shared": true, "headgate:share": true, "Headgate:shared:1": true, "": true,
	} {
		if err := law.ValidKey(key); (err == nil) != valid || !valid && !errors.Is(err, law.ErrInvalid) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func TestStoresCanApplyOpsToSharedCells(t *testing.T) {
	t.Parallel()
	op := take(five, 1000)
	op.Cell = law.SharedCell("l", 7)
	if err := op.Valid(); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"headgate:shared:", "headgate:shared:0", "headgate:shared:seven"} {
		op.Cell.Key = key
		if err := op.Valid(); !errors.Is(err, law.ErrInvalid) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func TestAResetKeepsASharedCell(t *testing.T) {
	t.Parallel()
	r := &law.Record{}
	outs := make([]law.Outcome, 1)
	op := take(five, 3000)
	op.Cell = law.SharedCell("l", 1)
	law.Apply([]law.Op{op}, outs, start, []*law.Record{r})
	op.Verb, r.Dirty = law.Reset, false
	law.Apply([]law.Op{op}, outs, start, []*law.Record{r})
	if outs[0].Granted != 1 || r.State != (law.State{}) || !r.Dirty || r.Gone {
		t.Errorf("%+v, left %+v", outs[0], r)
	}
}

func TestHowManyKeysALimitMayHaveChangesNoDecision(t *testing.T) {
	t.Parallel()
	p := five
	p.MaxKeys = 10
	if err := p.Valid(); err != nil || p.Terms() != five.Terms() {
		t.Errorf("%v, rule %v", err, p.Terms())
	}
	for _, n := range []int64{-1, law.Max + 1} {
		if p.MaxKeys = n; p.Valid() == nil {
			t.Errorf("%d keys are valid", n)
		}
	}
}

func TestNumbersTellOfAFullLimit(t *testing.T) {
	t.Parallel()
	for _, generation := range []int64{1, law.Max, law.Ended} {
		n := law.Numbers{9: start, 11: generation, 12: 6}
		if out := n.Outcome(); out != (law.Outcome{Full: generation, Clock: start}) {
			t.Errorf("generation %d: %+v", generation, out)
		}
	}
}
