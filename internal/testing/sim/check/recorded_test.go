package check_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/sim/check"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// notations are the limits of recorded histories, as notations and as in the format.
var notations = []struct {
	text string
	l    history.Limit
}{
	{"token-bucket 10/s burst 5", history.Limit{
		Algorithm: history.TokenBucket, Amount: "10", Period: second,
		Burst: "5",
	}},
	{"token-bucket 3/s burst 7", history.Limit{
		Algorithm: history.TokenBucket, Amount: "3", Period: second,
		Burst: "7",
	}},
	{
		"gcra 150001/1d burst 3",
		history.Limit{Algorithm: history.GCRA, Amount: "150001", Period: day, Burst: "3"},
	},
	{
		"leaky-bucket 1.5/s capacity 2.5 block 2s",
		history.Limit{Algorithm: history.LeakyBucket, Amount: "1.5", Period: second, Burst: "2.5", Block: 2 * second},
	},
	{"fixed-window 7/2s", history.Limit{Algorithm: history.FixedWindow, Amount: "7", Period: 2 * second}},
	{
		"fixed-window 7/2s from-first block 3s",
		history.Limit{
			Algorithm: history.FixedWindow, Amount: "7", Period: 2 * second, FromFirst: true,
			Block: 3 * second,
		},
	},
	{
		"fixed-window 9/minute",
		history.Limit{Algorithm: history.FixedWindow, Amount: "9", Calendar: "minute"},
	},
	{
		"fixed-window 9/day Europe/Berlin",
		history.Limit{Algorithm: history.FixedWindow, Amount: "9", Calendar: "day", Zone: "Europe/Berlin"},
	},
	{
		"fixed-window 9/hour Asia/Kolkata",
		history.Limit{Algorithm: history.FixedWindow, Amount: "9", Calendar: "hour", Zone: "Asia/Kolkata"},
	},
	{
		"fixed-window 9/week Antarctica/Troll",
		history.Limit{Algorithm: history.FixedWindow, Amount: "9", Calendar: "week", Zone: "Antarctica/Troll"},
	},
	{
		"fixed-window 9/month America/New_York",
		history.Limit{Algorithm: history.FixedWindow, Amount: "9", Calendar: "month", Zone: "America/New_York"},
	},
	{"interval 2/1s burst 5", history.Limit{Algorithm: history.Interval, Amount: "2", Period: second, Burst: "5"}},
	{"sliding-window 8/3s", history.Limit{Algorithm: history.SlidingWindow, Amount: "8", Period: 3 * second}},
	{"sliding-window 8.5/777ms", history.Limit{Algorithm: history.SlidingWindow, Amount: "8.5", Period: 777000}},
	{"sliding-log 6/1s", history.Limit{Algorithm: history.SlidingLog, Amount: "6", Period: second}},
}

// player runs a limiter over a memory store and records what happens.
type player struct {
	h     history.History
	l     *headgate.Limiter
	rnd   *rand.Rand
	now   int64 // microseconds since base
	clock int64 // by how much the store's clock is ahead
	last  int   // the newest id
	limit headgate.Limit
	vers  int // version of limit
	open  []openReservation
	seen  map[int]bool // versions in the history
}

// openReservation is a reservation that may still be settled or cancelled.
type openReservation struct {
	id  int
	r   *headgate.Reservation
	key string
}

func (p *player) event(e history.Event) {
	e.T = p.now*1000 + int64(p.last)%900
	if n := len(p.h.Events); n > 0 {
		e.T = max(e.T, p.h.Events[n-1].T)
	}
	p.h.Events = append(p.h.Events, e)
}

func (p *player) call(verb, key, cost string) *history.Call {
	p.last++
	c := &history.Call{ID: p.last, Verb: verb}
	if cost != "" {
		c.Charges = []history.Charge{{Limit: "l", Version: p.vers, Key: key, Cost: cost}}
	}
	p.event(history.Event{Node: "a", Call: c})
	return c
}

func (p *player) ret(c *history.Call, d *headgate.Decision, err error) *history.Return {
	r := &history.Return{ID: c.ID, Outcome: history.Done}
	switch {
	case err != nil:
		r.Outcome, r.Error = history.Nothing, err.Error()
	case d != nil:
		r.Outcome, r.At, r.Replayed = history.Refused, d.At.UnixMicro(), d.Replayed
		if d.Allowed {
			r.Outcome = history.Admitted
		}
		retry := d.RetryAfter.Microseconds()
		if d.RetryAfter == headgate.Never {
			retry = -1
		}
		if len(c.Charges) == 1 {
			r.Each = []history.Figures{{Remaining: d.Remaining, Capacity: d.Capacity, RetryAfter: retry}}
		}
	}
	p.event(history.Event{Node: "a", Return: r})
	return r
}

func (p *player) charge(key string, cost headgate.Cost) headgate.Charge {
	return headgate.Charge{Limit: p.limit, Key: key, Cost: cost}
}

// step makes one random call.
func (p *player) step(ctx context.Context, reserves bool) {
	costs := []string{"1", "1", "1", "2", "0.5", "1.001", "3", "6"}
	text, key := costs[p.rnd.IntN(len(costs))], fmt.Sprint("k", p.rnd.IntN(2))
	cost := headgate.MustCost(text)
	switch n := p.rnd.IntN(20); {
	case n < 11:
		c := p.call(history.Take, key, text)
		d, err := p.l.Take(ctx, p.charge(key, cost))
		p.ret(c, &d, err)
	case n < 13:
		c := p.call(history.Check, key, text)
		d, err := p.l.Check(ctx, p.charge(key, cost))
		p.ret(c, &d, err)
	case n < 14:
		c := p.call(history.Take, key, text)
		c.Charges = append(c.Charges, history.Charge{Limit: "l", Version: p.vers, Key: "k2", Cost: "1"})
		d, err := p.l.Take(ctx, p.charge(key, cost), p.charge("k2", headgate.Units(1)))
		p.ret(c, &d, err)
	case n < 15:
		c := p.call(history.Take, key, text)
		c.Idem = fmt.Sprint("id", p.rnd.IntN(5), key, text)
		c.Life = hour
		d, err := p.l.Once(c.Idem, time.Hour).Take(ctx, p.charge(key, cost))
		p.ret(c, &d, err)
		p.goOn(ctx, c.Idem, key, text)
	case n < 17 && reserves:
		wait := time.Duration(p.rnd.IntN(3)) * 700 * time.Millisecond
		c := p.call(history.Reserve, key, text)
		c.Wait = wait.Microseconds()
		r, err := p.l.Reserve(ctx, wait, p.charge(key, cost))
		if err != nil {
			p.ret(c, nil, err)
			return
		}
		ret := p.ret(c, &r.Decision, err)
		if r.Decision.Allowed {
			ret.StartAt = r.StartAt.UnixMicro()
			p.open = append(p.open, openReservation{c.ID, r, key})
		}
	case n < 19 && len(p.open) > 0:
		p.correct(ctx)
	case n == 19 && p.rnd.IntN(6) == 0:
		c := p.call(history.Reset, key, "1")
		c.Charges[0].Cost = ""
		_, err := p.l.Reset(ctx, p.limit, key)
		p.ret(c, nil, err)
		// what was charged before a reset should not be returned after it: law/giveback.go
		p.open = slices.DeleteFunc(p.open, func(k openReservation) bool { return k.key == key })
	}
}

// correct settles or cancels a reservation.
func (p *player) correct(ctx context.Context) {
	i := p.rnd.IntN(len(p.open))
	k := p.open[i]
	p.open = slices.Delete(p.open, i, i+1)
	var by []headgate.Cost
	var err error
	c := p.call(history.Cancel, "", "")
	c.Of = k.id
	if p.rnd.IntN(2) == 0 {
		by, err = k.r.Cancel(ctx)
	} else {
		c.Verb, c.Actual = history.Settle, []string{[]string{"0", "0.5", "4"}[p.rnd.IntN(3)]}
		by, err = k.r.Settle(ctx, actualCost(c.Actual[0]))
	}
	r := p.ret(c, nil, err)
	for _, b := range by {
		r.Corrected = append(r.Corrected, strings.TrimPrefix(cmp.Or(b.String(), "0"), "-"))
	}
}

func actualCost(text string) headgate.Cost {
	if text == "0" {
		return headgate.Units(0)
	}
	return headgate.MustCost(text)
}

// change gives the limit another definition: a new one, or one that it had before.
func (p *player) change(t *testing.T) {
	index := p.rnd.IntN(len(notations))
	limit, err := headgate.ParseNamed("l", notations[index].text)
	if err != nil {
		t.Fatal(err)
	}
	p.limit, p.vers, p.open = limit, index+2, nil
	if !p.seen[p.vers] {
		p.seen[p.vers] = true
		l := notations[index].l
		l.Name, l.Version = "l", p.vers
		p.event(history.Event{Limit: &l})
	}
}

// play records a number of steps with a limit, and the final state. With changes above 0, the limit changes once in so
// many steps; below 0, the store loses everything once in so many.
func play(t *testing.T, seed uint64, index, steps, changes int, jumps bool) *history.History {
	t.Helper()
	ctx := context.Background()
	p := &player{
		rnd: rand.New(rand.NewPCG(seed, uint64(index))), vers: 1, seen: map[int]bool{}, now: int64(seed % 77_777_777),
	}
	clock := func() int64 { return base + p.now + p.clock }
	s := memory.New(&memory.Config{Clock: clock, Names: true})
	defer s.Close()
	p.l = headgate.New(s, &headgate.Config{Clock: clock})
	crash := func() { // the store loses everything
		p.event(history.Event{Fault: &history.Fault{Kind: history.Forget}})
		p.l = headgate.New(memory.New(&memory.Config{Clock: clock, Names: true}), &headgate.Config{Clock: clock})
		p.open = nil
	}
	n := notations[index]
	limit, err := headgate.ParseNamed("l", n.text)
	if err != nil {
		t.Fatal(err)
	}
	p.limit = limit
	l := n.l
	l.Name, l.Version = "l", 1
	p.event(history.Event{Limit: &l})
	for range steps {
		if changes > 0 && p.rnd.IntN(changes) == 0 {
			p.change(t)
		}
		switch p.rnd.IntN(4) {
		case 0:
			p.now += p.rnd.Int64N(30_000)
		case 1:
			p.now += p.rnd.Int64N(900_000)
		case 2:
			p.now += p.rnd.Int64N(3)
		}
		if jumps && p.rnd.IntN(15) == 0 {
			by := []int64{second, 10 * second, -second, -5 * second, day, -day, hour / 3, 5 * day}[p.rnd.IntN(8)]
			p.clock += by
			if by < 0 {
				p.open = nil // a correction would return what has drained, which passes twice then
			}
			p.event(history.Event{Fault: &history.Fault{Kind: history.Clock, By: by}})
		}
		if changes < 0 && p.rnd.IntN(-changes) == 0 {
			crash()
		}
		p.step(ctx, true)
	}
	for _, key := range []string{"k0", "k1", "k2"} {
		if changes > 0 {
			break
		}
		status, err := p.l.Inspect(ctx, p.limit, key)
		if err != nil {
			t.Fatal(err)
		}
		p.event(history.Event{State: &history.State{
			Limit: "l", Version: p.vers, Key: key, Used: cmp.Or(status.Used.String(), "0"), At: status.At.UnixMicro(),
		}})
	}
	return &p.h
}

// TestRecorded checks that what a memory store really does is accepted, for each algorithm.
func TestRecorded(t *testing.T) {
	for index, n := range notations {
		t.Run(n.text, func(t *testing.T) {
			bad := 0
			for seed := range uint64(seeds(60)) {
				for _, jumps := range []bool{false, true} {
					h := play(t, seed, index, 120, 0, jumps)
					for _, v := range check.Check(h) {
						t.Errorf("seed %d, jumps %v: %s", seed, jumps, v)
						bad++
					}
					if bad > 3 {
						t.FailNow()
					}
				}
			}
		})
	}
}

// TestChanged checks that changed limits are accepted, changed once in a while or used in turn.
func TestChanged(t *testing.T) {
	for seed := range uint64(seeds(400)) {
		h := play(t, seed, int(seed)%len(notations), 120, []int{60, 30, 2}[seed%3], false)
		for _, v := range check.Check(h) {
			t.Fatalf("seed %d: %s", seed, v)
		}
	}
}

// TestForgotten checks that histories are accepted in which the store lost all that it had.
func TestForgotten(t *testing.T) {
	for seed := range uint64(seeds(400)) {
		h := play(t, seed, int(seed)%len(notations), 120, -40, false)
		for _, v := range check.Check(h) {
			t.Fatalf("seed %d: %s", seed, v)
		}
	}
}

// TestLost checks that histories are accepted in which some answers were lost, so that it is not known what was done.
func TestLost(t *testing.T) {
	for seed := range uint64(seeds(400)) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		h := play(t, seed, int(seed)%len(notations), 120, 0, seed%5 == 0)
		known := h.Events[:0]
		for _, e := range h.Events {
			if r := e.Return; r != nil && rnd.IntN(12) == 0 && r.Outcome != history.Nothing {
				if rnd.IntN(2) == 0 {
					continue // the caller has died
				}
				*r = history.Return{ID: r.ID, Outcome: history.Unknown}
				if rnd.IntN(2) == 0 {
					r.Until = e.T
				}
			}
			known = append(known, e)
		}
		h.Events = known
		for _, v := range check.Check(h) {
			t.Fatalf("seed %d: %s", seed, v)
		}
	}
}

// seeds returns how many histories to play, a sixth of them with make test; HEADGATE_TEST_HISTORIES multiplies them.
func seeds(n int) int {
	n = tier.Pick(n/6, n, n)
	times, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_HISTORIES"))
	if err != nil {
		return n
	}
	return n * times
}
