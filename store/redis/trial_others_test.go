package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestGivingBackATrialKeepsConcurrentCharges charges cells between a request of 3 units on trial and its return.
func TestGivingBackATrialKeepsConcurrentCharges(t *testing.T) {
	const second = 1_000_000
	for _, tt := range []struct {
		name        string
		p           law.Params
		takeDelay   int64 // from the trial to a charge of 2 units by another caller, in us
		backDelay   int64 // from the trial to its return, in us
		wantLevel   int64 // in units
		wantPrev    int64 // in units: of a bucket those given back, of a window those in the one before
		wantEntries int
	}{
		{"at once, all is given back", perSecond, 0, 0, 2, 3, 0},
		{"what has drained is not given back", perSecond, 2 * second, 0, 2, 1, 0},
		{"when all has drained, nothing is", perSecond, 4 * second, 0, 2, 0, 0},
		{"within the window", windowLimit, second, 0, 2, 0, 0},
		{"in the next window nothing is", windowLimit, 10 * second, 0, 2, 3, 0},
		{"an entry that counts", logLimit, second, 0, 2, 0, 1},
		{"an entry that counts no more", logLimit, 11 * second, 0, 2, 0, 1},
		{"an entry that expires meanwhile", logLimit, second, 10*second + second/2, 5, 0, 2},
		{"an entry with a history", historyLimit, second, 0, 2, 0, 2},
		{"an entry with a history that expires meanwhile", historyLimit, second, 10*second + second/2, 5, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openTest(t, dbtest.Redis(t), nil)
			now := testTime - testTime%(10*second)
			op := takeOne("l", "k", tt.p, now)
			op.Count = 3
			ops, outs := []law.Op{op}, make([]law.Outcome, 1)
			p := &part{call: s.encode(ops, []int{0}, onTrial)}
			list, err := s.send(context.Background(), []*call{p.call})[0].ToArray()
			if err == nil {
				err = p.read(ops, outs, list)
			}
			if err != nil || !p.admitted {
				t.Fatalf("%+v, %v", outs, err)
			}
			other := takeOne("l", "k", tt.p, now+tt.takeDelay)
			other.Count = 2
			apply(t, s, other)
			ops[0].Now = now + tt.backDelay
			numbers, err := s.send(context.Background(), []*call{s.giveBack(ops, outs, p, false)})[0].AsIntSlice()
			if err != nil {
				t.Fatal(err)
			}
			got := decodeState(numbers)
			if got.Level != tt.wantLevel*tt.p.Unit || got.Prev != tt.wantPrev*tt.p.Unit || got.At != now+tt.takeDelay {
				t.Errorf("got %+v, want level %d and prev %d units", got, tt.wantLevel, tt.wantPrev)
			}
			value, _ := admin(t, s, "GET", s.cellKey(op.Cell)).ToString()
			if stored, _, _ := parseCell(value); stored != got {
				t.Errorf("the stored cell is %+v, want %+v as answered", stored, got)
			}
			entries, err := s.Entries(context.Background(), op.Cell, 10)
			if err != nil || len(entries) != tt.wantEntries {
				t.Errorf("got %d entries, want %d: %+v, %v", len(entries), tt.wantEntries, entries, err)
			}
			if tt.p.History > 0 && (entries[0].Granted == entries[1].Granted || entries[1].Cost != 3*tt.p.Unit) {
				t.Errorf("got %+v, want a refused attempt for 3 units, and an admitted one", entries)
			}
			// The level and the log still agree: when all charges have expired, the capacity can be taken.
			whole := takeOne("l", "k", tt.p, now+tt.takeDelay+30*second)
			whole.Count = 10
			if out := apply(t, s, whole)[0]; out.Granted != 10 {
				t.Errorf("after 30 s: got %+v, want all ten units", out)
			}
		})
	}
}

// TestReserveOverSlotsIsErrUnsupported checks that nothing is sent, and that the error names the setting that helps.
func TestReserveOverSlotsIsErrUnsupported(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	roundTrips := 0
	s.client = &hookClient{s.client, func([]rueidis.Completed) { roundTrips++ }}
	a, b := twoKeysApart(t)
	ops := []law.Op{takeOne("l", a, perSecond, testTime), takeOne("l", b, perSecond, testTime)}
	for i := range ops {
		ops[i].Deferred, ops[i].Ceiling = true, perSecond.Ceiling(1_000_000)
	}
	for _, out := range outcomes(t, s, ops...) {
		if !errors.Is(out.Err, store.ErrUnsupported) || !strings.Contains(fmt.Sprint(out.Err), "redis.Config.Slot") {
			t.Errorf("got %+v, want ErrUnsupported that names redis.Config.Slot", out)
		}
	}
	if roundTrips > 0 {
		t.Errorf("got %d round trips, want none", roundTrips)
	}
	s.cfg.Slot = func(string) string { return "both" }
	for _, out := range outcomes(t, s, ops...) {
		if out.Err != nil || out.Granted != 1 || out.StartAt != testTime {
			t.Errorf("with one tag: got %+v, want it admitted", out)
		}
	}
	if roundTrips == 0 {
		t.Error("got no round trip, want one: the hook counts none")
	}
}

// TestGivingBackATrialKeepsConcurrentChanges checks that a block stays that came meanwhile, and a charge after a reset.
func TestGivingBackATrialKeepsConcurrentChanges(t *testing.T) {
	url := slotsURL(t)
	s := openSlots(t, url)
	for _, verb := range []law.Verb{law.Block, law.Reset} {
		for _, id := range []string{"", "id"} {
			ops := fillAndRequest(t, s, perSecond, testTime)
			for i := range ops {
				if ops[i].Cell.Limit = fmt.Sprint(ops[i].Cell.Limit, verb, id); id == "" {
					ops[i].ID, ops[i].TTL = "", 0
				}
			}
			fill := ops[1]
			fill.ID, fill.TTL = "", 0
			apply(t, s, fill)
			other := takeOne(ops[0].Cell.Limit, ops[0].Cell.Key, perSecond, testTime)
			change := other
			if change.Verb = verb; verb == law.Block {
				change.TTL, change.Reason = 3600_000_000, "abuse"
			}
			outs := apply(t, withHook(openSlots(t, url), func() {
				if apply(t, s, change); verb == law.Reset {
					apply(t, s, other)
				}
			}), ops...)
			check := other
			check.Verb = law.Check
			wantLevel := int64(0)
			if verb == law.Reset {
				wantLevel = perSecond.Unit
			}
			state := apply(t, s, check)[0].State
			if outs[1].Granted > 0 || state.Level != wantLevel || (state.BlockedUntil > 0) != (verb == law.Block) {
				t.Errorf("verb %v, id %q: got %+v, then %+v; want level %d", verb, id, outs, state, wantLevel)
			}
		}
	}
}
