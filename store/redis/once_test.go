package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/law"
)

func withID(id string, ops ...law.Op) []law.Op {
	for i := range ops {
		ops[i].ID, ops[i].TTL = id, 60_000_000
	}
	return ops
}

func settleOp(op law.Op, cost int64) law.Op {
	op.Verb, op.Cost, op.Count, op.TTL = law.Settle, cost, 1, 0
	return op
}

// outcomes applies requests that may fail.
func outcomes(tb testing.TB, s *Store, ops ...law.Op) []law.Outcome {
	tb.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(context.Background(), ops, outs); err != nil {
		tb.Fatal(err)
	}
	return outs
}

// TestAdmissionsLiveAsLongAsPromised checks when their keys expire. A register lives as long as its
// last admission.
func TestAdmissionsLiveAsLongAsPromised(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	cell := law.Cell{Limit: "l", Key: "k"}
	// lives fails the test unless a key lives for a time from begin on, and not much longer.
	lives := func(key string, begin int64, life time.Duration) {
		t.Helper()
		least := begin + life.Microseconds() - 1_000_000
		most := clock(t, s) + (life + life/10).Microseconds() + 3_000_000
		if end := endOf(t, s, key); end < least || end > most {
			t.Errorf("%s lives until %d, want %d to %d", key, end, least, most)
		}
	}
	first := clock(t, s)
	for _, tt := range []struct {
		id       string
		now, ttl int64 // us
		life     time.Duration
		register time.Duration
	}{
		{"a", 0, 600_000_000, 600 * time.Second, 600 * time.Second},
		{"b", 0, 60_000_000, 60 * time.Second, 600 * time.Second},
		{"test time", testTime, 60_000_000, time.Hour, time.Hour},
		{"long", 0, 1 << 52, 142 * 365 * 24 * time.Hour, 142 * 365 * 24 * time.Hour},
	} {
		op := takeOne("l", "k", hourly, tt.now)
		op.ID, op.TTL = tt.id, tt.ttl
		begin := clock(t, s)
		for range 2 {
			apply(t, s, op)
			lives(s.admissionKey(cell, tt.id), begin, tt.life)
			op = settleOp(op, op.Cost) // does not prolong the admission
		}
		lives(s.registerKey(cell), first, tt.register)
	}
}

// TestAResetInABatchForgetsWhatCameBefore: all ops of the batch have the same server time.
func TestAResetInABatchForgetsWhatCameBefore(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	take, reset := withID("id", takeOne("l", "k", hourly, 0))[0], takeOne("l", "k", hourly, 0)
	reset.Verb = law.Reset
	ops := []law.Op{take, take, reset, take, take, reset, reset, take}
	for i := range ops {
		ops[i].Group = uint32(i)
	}
	outs := apply(t, s, ops...)
	for i, want := range []bool{false, true, false, false, true, false, false, false} {
		if outs[i].Replayed != want || outs[i].Granted != 1 && i != 6 {
			t.Errorf("op %d: %+v, replayed should be %v", i, outs[i], want)
		}
	}
}

func TestIDsAndLimitsAreKeptApart(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	a, b := withID("b:c", takeOne("a", "k", hourly, 0))[0], withID("c", takeOne("a:b", "k", hourly, 0))[0]
	for _, op := range []law.Op{a, b} {
		if out := apply(t, s, op)[0]; out.Replayed {
			t.Errorf("%+v: %+v", op.Cell, out)
		}
	}
}

// TestARequestWithAnIDOverSlotsIsChargedOnce: each slot remembers the ID, and each slot settles.
func TestARequestWithAnIDOverSlotsIsChargedOnce(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		ops := withID("id", takeOne(fmt.Sprint(p), a, p, testTime), takeOne(fmt.Sprint(p), b, p, testTime))
		first := apply(t, s, ops...)
		for i, out := range apply(t, s, ops...) {
			first[i].Replayed = true
			if out != first[i] {
				t.Errorf("asked again:\n got %+v\nwant %+v", out, first[i])
			}
		}
		other := append([]law.Op(nil), ops...)
		other[1].Count = 2
		for _, out := range outcomes(t, s, other...) {
			if !errors.Is(out.Err, law.ErrReused) {
				t.Errorf("with another cost: %+v", out)
			}
		}
		settle := []law.Op{settleOp(ops[0], p.Unit/2), settleOp(ops[1], 2*p.Unit)}
		if outs := apply(t, s, settle...); outs[0].Granted != p.Unit/2 || outs[1].Granted != -p.Unit {
			t.Errorf("settled: %+v", outs)
		}
		for i, out := range apply(t, s, settle...) {
			if !out.Replayed || out.Granted != 0 || out.State.Level != []int64{p.Unit / 2, 2 * p.Unit}[i] {
				t.Errorf("settled again: %+v", out)
			}
		}
		settle[1].Cost++
		for _, out := range outcomes(t, s, settle...) {
			if !errors.Is(out.Err, law.ErrSettled) {
				t.Errorf("settled at another cost: %+v", out)
			}
		}
	}
}

// TestManyCallersWithOneIDOverSlots send the same request at once: all are admitted, and each slot charges once.
func TestManyCallersWithOneIDOverSlots(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	p := perSecond
	p.Capacity = p.Unit
	var admitted, charged [2]atomic.Int64
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			outs := make([]law.Outcome, 2)
			if err := s.Apply(context.Background(),
				withID("id", takeOne("l", a, p, testTime), takeOne("l", b, p, testTime)), outs); err != nil {
				t.Error(err)
			}
			for i, out := range outs {
				admitted[i].Add(out.Granted)
				if !out.Replayed {
					charged[i].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i := range admitted {
		if admitted[i].Load() != 24 || charged[i].Load() != 1 {
			t.Errorf("slot %d: %d of 24 were admitted, %d charged; want all and one", i, admitted[i].Load(),
				charged[i].Load())
		}
	}
}

// TestAnIDWithOtherChargesInOneSlotIsGivenBackInTheOthers: only one of the slots knows the ID.
func TestAnIDWithOtherChargesInOneSlotIsGivenBackInTheOthers(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	apply(t, s, withID("id", takeOne("l", b, perSecond, testTime))...)
	for _, out := range outcomes(t, s, withID("id", takeOne("l", a, perSecond, testTime),
		takeOne("l", b, perSecond, testTime))...) {
		if !errors.Is(out.Err, law.ErrReused) {
			t.Errorf("%+v", out)
		}
	}
	if n, _ := admin(t, s, "EXISTS", s.cellKey(law.Cell{Limit: "l", Key: a}),
		s.admissionKey(law.Cell{Limit: "l", Key: a}, "id")).AsInt64(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// TestARefusedRequestWithAnIDOverSlotsIsForgotten, unless the slot knew the ID before.
func TestARefusedRequestWithAnIDOverSlotsIsForgotten(t *testing.T) {
	for _, p := range allLaws {
		s := openSlots(t, slotsURL(t))
		ops := refusedBy(t, s, p, testTime)
		if outs := apply(t, s, ops...); outs[0].Replayed || outs[1].Granted != 0 {
			t.Errorf("%+v", outs)
		}
		if n, _ := admin(t, s, "EXISTS", s.admissionKey(ops[0].Cell, "request")).AsInt64(); n != 0 {
			t.Error("a refused request is remembered")
		}
		later := append([]law.Op(nil), ops...)
		for i := range later {
			later[i].Now += 10_000_000
		}
		if outs := apply(t, s, later...); outs[0].Replayed || outs[0].Granted != 3 || outs[1].Granted != 10 {
			t.Errorf("asked when there is room: %+v", outs)
		}
		// As after a crash: one slot knows the ID, the other does not, and refuses.
		admin(t, s, "DEL", s.admissionKey(ops[1].Cell, "request"))
		if outs := apply(t, s, later...); !outs[0].Replayed || outs[0].Granted != 3 || outs[1].Granted != 0 {
			t.Errorf("known to one slot: %+v", outs)
		}
		if outs := apply(t, s, settleOp(later[0], 0)); outs[0].Granted != 3*p.Unit {
			t.Errorf("what was known was forgotten: %+v", outs)
		}
	}
}

// TestAdmissionsOfOthersAreNotGivenBack repeats a request on trial with the same ID, and settles it,
// before the trial is given back.
func TestAdmissionsOfOthersAreNotGivenBack(t *testing.T) {
	for _, p := range allLaws {
		for _, meanwhile := range []string{"", "asked", "settled"} {
			s := openTest(t, dbtest.Redis(t), nil)
			ops, outs := withID("id", takeOne("l", "k", p, testTime)), make([]law.Outcome, 1)
			take := func() *part {
				p := &part{call: s.encode(ops, []int{0}, onTrial)}
				list, err := s.send(context.Background(), []*call{p.call})[0].ToArray()
				if err == nil {
					err = p.read(ops, outs, list)
				}
				if err != nil || !p.admitted {
					t.Fatalf("%+v, %v", outs, err)
				}
				return p
			}
			first := take()
			back := s.giveBack(ops, outs, first, false)
			switch meanwhile {
			case "asked":
				if again := take(); s.giveBack(ops, outs, again, false) != nil {
					t.Error("what was known is to be given back")
				}
			case "settled":
				apply(t, s, settleOp(ops[0], p.Unit))
			}
			if err := s.giveAllBack(context.Background(), ops, outs, []*call{back}); err != nil {
				t.Fatal(err)
			}
			stays := int64(0)
			if meanwhile != "" {
				stays = 1
			}
			if level := outs[0].State.Level; level != stays*p.Unit {
				t.Errorf("%q: level %d", meanwhile, level)
			}
			if n, _ := admin(t, s, "EXISTS", s.admissionKey(ops[0].Cell, "id")).AsInt64(); n != stays {
				t.Errorf("%q: %d admissions", meanwhile, n)
			}
		}
	}
}

func TestARenewedEntryKeepsItsLogAndCell(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	op := takeOne("l", "k", law.Params{Kind: law.Log, Unit: 1, Capacity: 1, Step: 60_000_000}, 0)
	out := apply(t, s, op)[0]
	keys := []string{s.cellKey(op.Cell), s.logKey(op.Cell)}
	for _, key := range keys { // as if two seconds had passed
		admin(t, s, "PEXPIRE", key, "60000")
	}
	renew := op
	renew.Verb, renew.EntryNumber = law.Renew, out.EntryNumber
	renewed := apply(t, s, renew)[0]
	if renewed.Granted != 1 || renewed.State.EmptyAt != renewed.Clock+60_000_000 {
		t.Errorf("%+v", renewed)
	}
	for _, key := range keys {
		if life := endOf(t, s, key) - renewed.Clock; life < 61_800_000 {
			t.Errorf("%s lives for %d us, want 62 s", key, life)
		}
	}
	if list, err := s.Entries(context.Background(), op.Cell, 10); err != nil || len(list) != 1 ||
		list[0].Number != out.EntryNumber || list[0].KeepUntil != renewed.Clock+60_000_000 {
		t.Errorf("%+v, %v", list, err)
	}
}
