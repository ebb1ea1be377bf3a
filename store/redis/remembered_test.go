package redis

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/law"
)

// TestSettleByAChangedLimitMatchesPackageLaw settles charges by a limit of which no parameter has changed since the
// charge, or one, or the kind and the drain.
func TestSettleByAChangedLimitMatchesPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	for n, change := range []func(p *law.Params){
		func(*law.Params) {},
		func(p *law.Params) { p.Block = 1 },
		func(p *law.Params) { p.Kind, p.Drain = law.Bucket+law.Log-p.Kind, 1 },
		func(p *law.Params) { p.Anchor = law.Epoch },
		func(p *law.Params) { p.Unit++ },
		func(p *law.Params) { p.Capacity++ },
		func(p *law.Params) { p.Step++ },
		func(p *law.Params) { p.Drain++ },
	} {
		for _, p := range []law.Params{perSecond, logLimit} {
			record := &law.Record{Log: &sliceLedger{}, Receipts: mapReceipts{}}
			take := withID("id", takeOne(fmt.Sprint(p), fmt.Sprint(n), p, testTime))[0]
			changedTake := take
			change(&changedTake.Params)
			for k, op := range []law.Op{
				take, settleOp(changedTake, p.Unit/2), settleOp(changedTake, p.Unit/2), settleOp(take, p.Unit/2),
				settleOp(take, 0), settleOp(take, law.Cancelled), take,
			} {
				want := make([]law.Outcome, 1)
				law.Apply([]law.Op{op}, want, testTime, []*law.Record{record})
				got := outcomes(t, s, op)[0]
				record.Log.(*sliceLedger).applyRecord(record, got.EntryNumber)
				if want[0].EntryNumber = got.EntryNumber; got != want[0] {
					t.Errorf("change %d, op %d %+v:\n got %+v\nwant %+v", n, k, op, got, want[0])
				}
			}
		}
	}
}

// TestGivingBackATrialRestoresTheReceipt checks that a slot remembers again that a request was cancelled if another
// slot refuses a retry of the request.
func TestGivingBackATrialRestoresTheReceipt(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	ops := withID("id", takeOne("l", a, perSecond, testTime), takeOne("l", b, perSecond, testTime))
	apply(t, s, ops...)
	cancel, reset := settleOp(ops[0], law.Cancelled), takeOne("l", b, perSecond, testTime)
	takeAll := reset
	reset.Verb, takeAll.Count = law.Reset, 10
	apply(t, s, cancel)
	apply(t, s, reset)
	apply(t, s, takeAll)
	if outs := apply(t, s, ops...); outs[0].Replayed || outs[1].Granted != 0 || outs[1].RetryAt != testTime+1_000_000 {
		t.Errorf("got %+v, want the second slot to refuse", outs)
	}
	if out := apply(t, s, cancel)[0]; !out.Replayed || out.State.Level != 0 || out.Granted != 0 {
		t.Errorf("cancelled again: got %+v, want it replayed", out)
	}
}
