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

// withID gives ops an ID for a minute, and returns them.
func withID(id string, ops ...law.Op) []law.Op {
	for i := range ops {
		ops[i].ID, ops[i].TTL = id, 60_000_000
	}
	return ops
}

// settleOp returns an op that settles the charge of op at a cost in credits.
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

// TestReceiptsExpireAfterTheirTTL checks when the Redis keys of receipts expire. The register of a cell lives as long
// as its last receipt.
func TestReceiptsExpireAfterTheirTTL(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	cell := law.Cell{Limit: "l", Key: "k"}
	// expectLife fails the test unless a key lives for a time from begin on, and not much longer.
	expectLife := func(key string, begin int64, life time.Duration) {
		t.Helper()
		minEnd := begin + life.Microseconds() - 1_000_000
		maxEnd := clock(t, s) + (life + life/10).Microseconds() + 3_000_000
		if end := expiryOf(t, s, key); end < minEnd || end > maxEnd {
			t.Errorf("%s expires at %d, want %d to %d", key, end, minEnd, maxEnd)
		}
	}
	start := clock(t, s)
	for _, tt := range []struct {
		id           string
		now, ttl     int64 // us
		receiptLife  time.Duration
		registerLife time.Duration
	}{
		{"a", 0, 600_000_000, 600 * time.Second, 600 * time.Second},
		{"b", 0, 60_000_000, 60 * time.Second, 600 * time.Second},
		{"test time", testTime, 60_000_000, time.Hour, time.Hour}, // see life in cells.lua
		{"long", 0, 1 << 52, 142 * 365 * 24 * time.Hour, 142 * 365 * 24 * time.Hour},
	} {
		op := takeOne("l", "k", hourly, tt.now)
		op.ID, op.TTL = tt.id, tt.ttl
		begin := clock(t, s)
		for range 2 {
			apply(t, s, op)
			expectLife(s.receiptKey(cell, tt.id), begin, tt.receiptLife)
			op = settleOp(op, op.Cost) // does not prolong the receipt
		}
		expectLife(s.registerKey(cell), start, tt.registerLife)
	}
}

// TestAResetInABatchForgetsTheIDsBeforeIt checks a batch whose ops all have the same server time.
func TestAResetInABatchForgetsTheIDsBeforeIt(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	take, reset := withID("id", takeOne("l", "k", hourly, 0))[0], takeOne("l", "k", hourly, 0)
	reset.Verb = law.Reset
	ops := []law.Op{take, take, reset, take, take, reset, reset, take}
	for i := range ops {
		ops[i].Group = uint32(i)
	}
	outs := apply(t, s, ops...)
	for i, want := range []bool{false, true, false, false, true, false, false, false} {
		if outs[i].Replayed != want || outs[i].Granted != 1 && i != 6 { // op 6 finds nothing to reset
			t.Errorf("op %d: got %+v, want replayed %v", i, outs[i], want)
		}
	}
}

func TestIDsAndLimitNamesDoNotCollide(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	a, b := withID("b:c", takeOne("a", "k", hourly, 0))[0], withID("c", takeOne("a:b", "k", hourly, 0))[0]
	for _, op := range []law.Op{a, b} {
		if out := apply(t, s, op)[0]; out.Replayed {
			t.Errorf("%+v: got %+v, want it charged", op.Cell, out)
		}
	}
}

// TestARequestWithAnIDOverSlotsIsChargedOnce checks that each slot remembers the ID, and that each slot settles.
func TestARequestWithAnIDOverSlotsIsChargedOnce(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		ops := withID("id", takeOne(fmt.Sprint(p), a, p, testTime), takeOne(fmt.Sprint(p), b, p, testTime))
		first := apply(t, s, ops...)
		for i, out := range apply(t, s, ops...) {
			first[i].Replayed = true
			if out != first[i] {
				t.Errorf("retried:\n got %+v\nwant %+v", out, first[i])
			}
		}
		costlier := append([]law.Op(nil), ops...)
		costlier[1].Count = 2
		for _, out := range outcomes(t, s, costlier...) {
			if !errors.Is(out.Err, law.ErrReused) {
				t.Errorf("with another cost: got %+v, want ErrReused", out)
			}
		}
		settle := []law.Op{settleOp(ops[0], p.Unit/2), settleOp(ops[1], 2*p.Unit)}
		if outs := apply(t, s, settle...); outs[0].Granted != p.Unit/2 || outs[1].Granted != -p.Unit {
			t.Errorf("settled: got %+v", outs)
		}
		for i, out := range apply(t, s, settle...) {
			if !out.Replayed || out.Granted != 0 || out.State.Level != []int64{p.Unit / 2, 2 * p.Unit}[i] {
				t.Errorf("settled again: got %+v", out)
			}
		}
		settle[1].Cost++
		for _, out := range outcomes(t, s, settle...) {
			if !errors.Is(out.Err, law.ErrSettled) {
				t.Errorf("settled at another cost: got %+v, want ErrSettled", out)
			}
		}
	}
}

// TestConcurrentRetriesOverSlotsAreChargedOnce checks that 24 callers with one ID are all admitted, and charged once.
func TestConcurrentRetriesOverSlotsAreChargedOnce(t *testing.T) {
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
			t.Errorf("slot %d: got %d of 24 admitted, %d charged; want 24 and 1", i, admitted[i].Load(),
				charged[i].Load())
		}
	}
}

// TestAReusedIDInOneSlotIsGivenBackInTheOthers checks a request whose ID one of two slots knows from another.
func TestAReusedIDInOneSlotIsGivenBackInTheOthers(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	apply(t, s, withID("id", takeOne("l", b, perSecond, testTime))...)
	for _, out := range outcomes(t, s, withID("id", takeOne("l", a, perSecond, testTime),
		takeOne("l", b, perSecond, testTime))...) {
		if !errors.Is(out.Err, law.ErrReused) {
			t.Errorf("got %+v, want ErrReused", out)
		}
	}
	if n, _ := admin(t, s, "EXISTS", s.cellKey(law.Cell{Limit: "l", Key: a}),
		s.receiptKey(law.Cell{Limit: "l", Key: a}, "id")).AsInt64(); n != 0 {
		t.Errorf("got %d Redis keys of the other slot, want none", n)
	}
}

// TestARefusedRequestOverSlotsForgetsItsID checks that a slot forgets the ID, unless it knew the ID before.
func TestARefusedRequestOverSlotsForgetsItsID(t *testing.T) {
	for _, p := range allLaws {
		s := openSlots(t, slotsURL(t))
		ops := fillAndRequest(t, s, p, testTime)
		if outs := apply(t, s, ops...); outs[0].Replayed || outs[1].Granted != 0 {
			t.Errorf("got %+v, want a refusal", outs)
		}
		if n, _ := admin(t, s, "EXISTS", s.receiptKey(ops[0].Cell, "request")).AsInt64(); n != 0 {
			t.Error("a refused request is remembered")
		}
		retry := append([]law.Op(nil), ops...)
		for i := range retry {
			retry[i].Now += 10_000_000
		}
		if outs := apply(t, s, retry...); outs[0].Replayed || outs[0].Granted != 3 || outs[1].Granted != 10 {
			t.Errorf("retried when there is room: got %+v", outs)
		}
		// One slot knows the ID, as after a crash. The other does not, and refuses.
		admin(t, s, "DEL", s.receiptKey(ops[1].Cell, "request"))
		if outs := apply(t, s, retry...); !outs[0].Replayed || outs[0].Granted != 3 || outs[1].Granted != 0 {
			t.Errorf("known to one slot: got %+v", outs)
		}
		if outs := apply(t, s, settleOp(retry[0], 0)); outs[0].Granted != 3*p.Unit {
			t.Errorf("settled in the slot that knew the ID: got %+v, want three units back", outs)
		}
	}
}

// TestAChargeThatAnotherCallerReliesOnIsNotGivenBack checks a request on trial after which another caller repeats the
// request, or settles it. Without that the trial is given back.
func TestAChargeThatAnotherCallerReliesOnIsNotGivenBack(t *testing.T) {
	for _, p := range allLaws {
		for _, event := range []string{"", "repeated", "settled"} {
			s := openTest(t, dbtest.Redis(t), nil)
			ops, outs := withID("id", takeOne("l", "k", p, testTime)), make([]law.Outcome, 1)
			takeOnTrial := func() *part {
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
			trial := takeOnTrial()
			giveBackCall := s.giveBack(ops, outs, trial, false)
			switch event {
			case "repeated":
				if repeated := takeOnTrial(); s.giveBack(ops, outs, repeated, false) != nil {
					t.Error("a replayed charge is to be given back")
				}
			case "settled":
				apply(t, s, settleOp(ops[0], p.Unit))
			}
			if err := s.giveAllBack(context.Background(), ops, outs, []*call{giveBackCall}); err != nil {
				t.Fatal(err)
			}
			wantUnits := int64(0)
			if event != "" {
				wantUnits = 1
			}
			if level := outs[0].State.Level; level != wantUnits*p.Unit {
				t.Errorf("%q: got level %d, want %d units", event, level, wantUnits)
			}
			if n, _ := admin(t, s, "EXISTS", s.receiptKey(ops[0].Cell, "id")).AsInt64(); n != wantUnits {
				t.Errorf("%q: got %d receipts, want %d", event, n, wantUnits)
			}
		}
	}
}

func TestRenewProlongsTheLogAndTheCell(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	op := takeOne("l", "k", law.Params{Kind: law.Log, Unit: 1, Capacity: 1, Step: 60_000_000}, 0)
	out := apply(t, s, op)[0]
	keys := []string{s.cellKey(op.Cell), s.logKey(op.Cell)}
	for _, key := range keys { // as if two of the 62 s had passed
		admin(t, s, "PEXPIRE", key, "60000")
	}
	renew := op
	renew.Verb, renew.EntryNumber = law.Renew, out.EntryNumber
	renewed := apply(t, s, renew)[0]
	if renewed.Granted != 1 || renewed.State.EmptyAt != renewed.Clock+60_000_000 {
		t.Errorf("got %+v, want it renewed for 60 s", renewed)
	}
	for _, key := range keys {
		if life := expiryOf(t, s, key) - renewed.Clock; life < 61_800_000 {
			t.Errorf("got a life of %d us for %s, want 62 s", life, key)
		}
	}
	if list, err := s.Entries(context.Background(), op.Cell, 10); err != nil || len(list) != 1 ||
		list[0].Number != out.EntryNumber || list[0].KeepUntil != renewed.Clock+60_000_000 {
		t.Errorf("got entries %+v, %v; want the renewed one", list, err)
	}
}
