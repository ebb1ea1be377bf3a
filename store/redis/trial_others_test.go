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

// TestConcurrentChargesStay charges cells between a request on trial and its return.
func TestConcurrentChargesStay(t *testing.T) {
	const second = 1_000_000
	for _, tt := range []struct {
		name    string
		p       law.Params
		later   int64 // when other callers take 2 units
		back    int64 // when the trial is given back
		level   int64 // the level afterwards, in units
		prev    int64
		entries int
	}{
		{"at once, all is given back", perSecond, 0, 0, 2, 3, 0},
		{"what has drained is not given back", perSecond, 2 * second, 0, 2, 1, 0},
		{"when all has drained, nothing is", perSecond, 4 * second, 0, 2, 0, 0},
		{"within the window", windowed, second, 0, 2, 0, 0},
		{"in the next window nothing is", windowed, 10 * second, 0, 2, 3, 0},
		{"an entry that counts", logged, second, 0, 2, 0, 1},
		{"an entry that counts no more", logged, 11 * second, 0, 2, 0, 1},
		{"an entry that expires meanwhile", logged, second, 10*second + second/2, 5, 0, 2},
		{"an entry with a history", recorded, second, 0, 2, 0, 2},
		{"an entry with a history that expires meanwhile", recorded, second, 10*second + second/2, 5, 0, 2},
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
			other := takeOne("l", "k", tt.p, now+tt.later)
			other.Count = 2
			apply(t, s, other)
			ops[0].Now = now + tt.back
			numbers, err := s.send(context.Background(), []*call{s.giveBack(ops, outs, p, false)})[0].AsIntSlice()
			if err != nil {
				t.Fatal(err)
			}
			got := decodeState(numbers)
			if got.Level != tt.level*tt.p.Unit || got.Prev != tt.prev*tt.p.Unit || got.At != now+tt.later {
				t.Errorf("got %+v, want level %d and prev %d", got, tt.level, tt.prev)
			}
			value, _ := admin(t, s, "GET", s.cellKey(op.Cell)).ToString()
			if stored, _, _ := parseCell(value); stored != got {
				t.Errorf("stored is %+v, answered was %+v", stored, got)
			}
			left, err := s.Entries(context.Background(), op.Cell, 10)
			if err != nil || len(left) != tt.entries {
				t.Errorf("%d entries, want %d: %+v, %v", len(left), tt.entries, left, err)
			}
			if tt.p.History > 0 && (left[0].Granted == left[1].Granted || left[1].Cost != 3*tt.p.Unit) {
				t.Errorf("want a refused attempt for 3 and one that passed: %+v", left)
			}
			// The level and the log still agree: when all charges have expired, the capacity can be taken.
			all := takeOne("l", "k", tt.p, now+tt.later+30*second)
			all.Count = 10
			if out := apply(t, s, all)[0]; out.Granted != 10 {
				t.Errorf("later: %+v, want all ten", out)
			}
		})
	}
}

// TestAReservationOverSlotsIsRefusedBeforeAnythingIsSent: the error says what is wrong and what to do.
func TestAReservationOverSlotsIsRefusedBeforeAnythingIsSent(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	sent := 0
	s.client = &hookClient{s.client, func([]rueidis.Completed) { sent++ }}
	a, b := twoKeysApart(t)
	ops := []law.Op{takeOne("l", a, perSecond, testTime), takeOne("l", b, perSecond, testTime)}
	for i := range ops {
		ops[i].Deferred, ops[i].Ceiling = true, perSecond.Ceiling(1_000_000)
	}
	for _, out := range outcomes(t, s, ops...) {
		if !errors.Is(out.Err, store.ErrUnsupported) || !strings.Contains(fmt.Sprint(out.Err), "redis.Config.Slot") {
			t.Errorf("%+v", out)
		}
	}
	if sent > 0 {
		t.Errorf("it was sent in %d round trips", sent)
	}
	s.cfg.Slot = func(string) string { return "both" }
	for _, out := range outcomes(t, s, ops...) {
		if out.Err != nil || out.Granted != 1 || out.StartAt != testTime {
			t.Errorf("with one tag: %+v", out)
		}
	}
	if sent == 0 {
		t.Error("what is sent is not seen")
	}
}

// TestConcurrentChangesBetweenRoundTripsStay makes a block, and charges after a reset, between two round trips.
func TestConcurrentChangesBetweenRoundTripsStay(t *testing.T) {
	url := slotsURL(t)
	s := openSlots(t, url)
	for _, verb := range []law.Verb{law.Block, law.Reset} {
		for _, id := range []string{"", "id"} {
			ops := refusedBy(t, s, perSecond, testTime)
			for i := range ops {
				if ops[i].Cell.Limit = fmt.Sprint(ops[i].Cell.Limit, verb, id); id == "" {
					ops[i].ID, ops[i].TTL = "", 0
				}
			}
			full := ops[1]
			full.ID, full.TTL = "", 0
			apply(t, s, full)
			other := takeOne(ops[0].Cell.Limit, ops[0].Cell.Key, perSecond, testTime)
			act := other
			if act.Verb = verb; verb == law.Block {
				act.TTL, act.Reason = 3600_000_000, "abuse"
			}
			outs := apply(t, withHook(openSlots(t, url), func() {
				if apply(t, s, act); verb == law.Reset {
					apply(t, s, other)
				}
			}), ops...)
			check := other
			check.Verb = law.Check
			level := int64(0)
			if verb == law.Reset {
				level = perSecond.Unit
			}
			out := apply(t, s, check)[0]
			if outs[1].Granted != 0 || out.State.Level != level || (out.State.BlockedUntil > 0) != (verb == law.Block) {
				t.Errorf("verb %v, id %q: %+v, then %+v", verb, id, outs, out.State)
			}
		}
	}
}
