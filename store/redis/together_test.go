package redis

import (
	"context"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
)

// interposed is a client that hands over one command at a time, after before.
type interposed struct {
	rueidis.Client
	before func(ctx context.Context, multi []rueidis.Completed, n int) context.Context
}

func (c *interposed) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	results := make([]rueidis.RedisResult, len(multi))
	for n := range multi {
		results[n] = c.Do(c.before(ctx, multi, n), multi[n])
	}
	return results
}

// interrupted returns the store with its own sight of the world: between the first
// and the second time that it asks the servers of anything, others do something.
func interrupted(s *Store, others func()) *Store {
	asked := 0
	s.client = &interposed{s.client, func(ctx context.Context, _ []rueidis.Completed, n int) context.Context {
		if n == 0 {
			if asked++; asked == 2 {
				others()
			}
		}
		return ctx
	}}
	return s
}

// cutOff returns the store, whose connections break after it asked once.
func cutOff(s *Store) *Store {
	asked := 0
	s.client = &interposed{s.client, func(ctx context.Context, _ []rueidis.Completed, n int) context.Context {
		if n == 0 {
			asked++
		}
		if asked > 1 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		return ctx
	}}
	return s
}

// reserving returns a charge of so many units that is ready to wait for so many
// seconds.
func reserving(limit, key string, units, seconds int64) law.Op {
	op := takeOne(limit, key, perSecond, testTime)
	op.Count, op.Late, op.Ceiling = units, true, perSecond.Ceiling(seconds*1_000_000)
	return op
}

// at gives ops a time, in seconds.
func at(sec float64, ops ...law.Op) []law.Op {
	for i := range ops {
		ops[i].Now = testTime + int64(sec*1e6)
	}
	return ops
}

// level returns how much a cell holds, in units.
func level(t *testing.T, s *Store, op law.Op) float64 {
	t.Helper()
	op.Verb, op.ID, op.Late, op.Ceiling = law.Check, "", false, 0
	return float64(apply(t, s, op)[0].State.Level) / 1e6
}

// TestAStartInCommonStandsBehindThoseWhoCameMeanwhile reserves in two slots, of
// which the second starts 6 s later, and lets others come between the first and the
// second round trip. They have been given starts as if it began earlier there.
func TestAStartInCommonStandsBehindThoseWhoCameMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  []int64 // what is reserved of the first key, in units
		other  int64   // what others reserve of it meanwhile
		wait   int64   // how long the request is ready to wait
		start  int64   // the seconds after which it starts; 0: it is refused
		levels [2]float64
	}{
		{"nobody", []int64{6}, 0, 60, 6, [2]float64{12, 16}},
		{"those who take the room that is left", []int64{6}, 4, 60, 6, [2]float64{12, 16}},
		{"those who wait until then", []int64{6}, 10, 60, 12, [2]float64{22, 18}},
		{"those behind whom it would wait for too long", []int64{6}, 10, 11, 0, [2]float64{16, 10}},
		{"nobody, and the key is charged twice", []int64{3, 3}, 0, 60, 6, [2]float64{12, 16}},
		{"those who wait until then, and the key is charged twice", []int64{3, 3}, 10, 60, 12, [2]float64{22, 18}},
	} {
		for _, how := range []string{"", "with an id", "cut off and asked again"} {
			if how != "" && len(tt.first) > 1 {
				continue // one with an id charges each key once
			}
			t.Run(tt.name+", "+how, func(t *testing.T) {
				url := dbtest.RedisCluster(t)
				s := openTest(t, url, nil)
				a, b := apart(t)
				apply(t, s, reserving("l", b, 10, 0))
				var ops []law.Op
				for _, units := range tt.first {
					ops = append(ops, reserving("l", a, units, tt.wait))
				}
				ops = append(ops, reserving("l", b, 6, tt.wait))
				if how != "" {
					once60("id", ops...)
				}
				others := func() {
					if tt.other > 0 {
						apply(t, s, reserving("l", a, tt.other, 60))
					}
				}
				levels := tt.levels
				var outs []law.Outcome
				if how == "cut off and asked again" {
					if err := cutOff(openTest(t, url, nil)).Apply(context.Background(), ops, make([]law.Outcome, len(ops))); err == nil {
						t.Fatal("it was not cut off")
					}
					others()
					outs = apply(t, s, ops...)
					if tt.start == 0 { // nobody knows whether it was answered before
						levels[1] = 16
					}
				} else {
					outs = apply(t, interrupted(openTest(t, url, nil), others), ops...)
				}
				check := func(outs []law.Outcome) {
					t.Helper()
					if tt.start == 0 && (outs[0].Granted > 0 || outs[0].RetryAt < testTime+12_000_000-tt.wait*1_000_000) {
						t.Errorf("want a refusal: %+v", outs[0])
					}
					for _, out := range outs {
						late := out.StartAt - testTime - tt.start*1_000_000
						if tt.start == 0 && out.StartAt != 0 || tt.start > 0 && (late < 0 || late > firstMargin || out.StartAt != outs[0].StartAt) {
							t.Errorf("it starts after %d us: %+v", out.StartAt-testTime, outs)
						}
					}
					for i, op := range []law.Op{ops[0], ops[len(ops)-1]} {
						if got := level(t, s, op) - levels[i]; got < 0 || got > 0.0011 {
							t.Errorf("key %d has %.3f units more in use than %v", i, got, levels[i])
						}
					}
				}
				check(outs)
				if how != "" && tt.start > 0 {
					again := apply(t, s, ops...)
					check(again)
					if !again[0].Replayed || again[0].State != outs[0].State {
						t.Errorf("asked again: %+v, want what was said before: %+v", again[0], outs[0])
					}
				}
			})
		}
	}
}

// TestWhatIsRefusedWhenItIsToStartLaterIsGivenBack lets one slot start so late that
// the level of the other could not be written down, where others have come.
func TestWhatIsRefusedWhenItIsToStartLaterIsGivenBack(t *testing.T) {
	slow := law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1 << 40, Drain: 1}
	quick := law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1 << 50, Step: 1, Drain: 1 << 20}
	for _, other := range []int64{0, 3} {
		for _, id := range []string{"", "id"} {
			url := dbtest.RedisCluster(t)
			s := openTest(t, url, nil)
			a, b := apart(t)
			ops := []law.Op{takeOne("slow", a, slow, testTime), takeOne("quick", b, quick, testTime), takeOne("quick", b, quick, testTime)}
			apply(t, s, ops[0])
			for i := range ops {
				ops[i].Late, ops[i].Ceiling = true, ops[i].Params.Ceiling(1<<41)
			}
			if id != "" {
				ops = once60(id, ops[:2]...)
			}
			outs := apply(t, interrupted(openTest(t, url, nil), func() {
				if other > 0 {
					op := takeOne("quick", b, quick, testTime)
					op.Count = other
					apply(t, s, op)
				}
			}), ops...)
			if outs[0].Granted != 1 || outs[1].Granted != 0 || outs[1].RetryAt != testTime+1<<40 || outs[0].StartAt+outs[1].StartAt != 0 {
				t.Errorf("%+v", outs)
			}
			for i, want := range []int64{1, other} {
				op := takeOne(ops[i].Cell.Limit, ops[i].Cell.Key, ops[i].Params, testTime)
				op.Verb = law.Check
				if got := apply(t, s, op)[0].State.Level; got != want {
					t.Errorf("%q, others take %d: %s has %d in use, want %d", id, other, op.Cell.Limit, got, want)
				}
				if n, _ := admin(t, s, "EXISTS", s.admissionKey(op.Cell, "id")).AsInt64(); n != 0 {
					t.Errorf("%s remembers the id", op.Cell.Limit)
				}
			}
		}
	}
}

// TestAStartIsNotPutOffForEver lets others come before each round trip, and more of
// them each time.
func TestAStartIsNotPutOffForEver(t *testing.T) {
	url := dbtest.RedisCluster(t)
	s := openTest(t, url, nil)
	a, b := apart(t)
	apply(t, s, reserving("l", b, 10, 0))
	ops := once60("id", reserving("l", a, 6, 10_000), reserving("l", b, 6, 10_000))
	crowd, asked, more := openTest(t, url, nil), 0, int64(10_000_000)
	crowd.client = &interposed{crowd.client, func(ctx context.Context, multi []rueidis.Completed, n int) context.Context {
		if asked++; asked > len(ops) && n == 0 && asked < 40 {
			for left := more; left > 0; left -= 10_000_000 {
				op := reserving("l", a, 1, 100_000)
				op.Cost = min(left, 10_000_000)
				apply(t, s, op)
			}
			if more == 10_000_000 {
				more = firstMargin
			}
			more *= 2
		}
		return ctx
	}}
	outs := apply(t, crowd, ops...)
	if outs[0].Granted > 0 || outs[0].StartAt > 0 || outs[0].RetryAt < testTime+16_000_000 || asked < 2*mostRounds {
		t.Errorf("%+v, asked %d times", outs, asked)
	}
	if got := level(t, s, ops[1]); got != 10 {
		t.Errorf("the other key has %v units in use, want what it had", got)
	}
	for _, op := range ops {
		if n, _ := admin(t, s, "EXISTS", s.admissionKey(op.Cell, "id")).AsInt64(); n != 0 {
			t.Errorf("%s remembers the id", op.Cell.Key)
		}
	}
}
