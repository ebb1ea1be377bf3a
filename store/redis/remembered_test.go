package redis

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/law"
)

// TestChargesOfAChangedLimitAreNotCorrected settles charges by a limit of which no number or one number has
// changed since. The outcomes match package law.
func TestChargesOfAChangedLimitAreNotCorrected(t *testing.T) {
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
		for _, p := range []law.Params{perSecond, logged} {
			record := &law.Record{Log: &entries{}, Receipts: register{}}
			was := withID("id", takeOne(fmt.Sprint(p), fmt.Sprint(n), p, testTime))[0]
			now := was
			change(&now.Params)
			for k, op := range []law.Op{
				was, settleOp(now, p.Unit/2), settleOp(now, p.Unit/2), settleOp(was, p.Unit/2),
				settleOp(was, 0), settleOp(was, law.Cancelled), was,
			} {
				want := make([]law.Outcome, 1)
				law.Apply([]law.Op{op}, want, testTime, []*law.Record{record})
				got := outcomes(t, s, op)[0]
				record.Log.(*entries).applyRecord(record, got.EntryNumber)
				if want[0].EntryNumber = got.EntryNumber; got != want[0] {
					t.Errorf("change %d, op %d %+v:\n got %+v\nwant %+v", n, k, op, got, want[0])
				}
			}
		}
	}
}

// TestAnUndoneTrialIsRestored: if one slot refuses a repeated request, the other slot remembers again
// that the request was cancelled.
func TestAnUndoneTrialIsRestored(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	k := keysApart(2)
	ops := withID("id", takeOne("l", k[0], perSecond, testTime), takeOne("l", k[1], perSecond, testTime))
	apply(t, s, ops...)
	cancel, reset, full := settleOp(ops[0], law.Cancelled), takeOne("l", k[1], perSecond, testTime),
		takeOne("l", k[1], perSecond, testTime)
	reset.Verb, full.Count = law.Reset, 10
	apply(t, s, cancel)
	apply(t, s, reset)
	apply(t, s, full)
	if outs := apply(t, s, ops...); outs[0].Replayed || outs[1].Granted != 0 || outs[1].RetryAt != testTime+1_000_000 {
		t.Errorf("%+v, want the second to refuse", outs)
	}
	if out := apply(t, s, cancel)[0]; !out.Replayed || out.State.Level != 0 || out.Granted != 0 {
		t.Errorf("cancelled again: %+v", out)
	}
}
