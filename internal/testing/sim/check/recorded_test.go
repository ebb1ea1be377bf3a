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
	text  string
	limit history.Limit
}{
	{
		"token-bucket 10/s burst 5",
		history.Limit{Algorithm: history.TokenBucket, Amount: "10", Period: second, Burst: "5"},
	},
	{
		"token-bucket 3/s burst 7",
		history.Limit{Algorithm: history.TokenBucket, Amount: "3", Period: second, Burst: "7"},
	},
	{"gcra 150001/1d burst 3", history.Limit{Algorithm: history.GCRA, Amount: "150001", Period: day, Burst: "3"}},
	{
		"leaky-bucket 1.5/s capacity 2.5 block 2s",
		history.Limit{Algorithm: history.LeakyBucket, Amount: "1.5", Period: second, Burst: "2.5", Block: 2 * second},
	},
	{"fixed-window 7/2s", history.Limit{Algorithm: history.FixedWindow, Amount: "7", Period: 2 * second}},
	{
		"fixed-window 7/2s from-first block 3s",
		history.Limit{
			Algorithm: history.FixedWindow, Amount: "7", Period: 2 * second, FromFirst: true, Block: 3 * second,
		},
	},
	{"fixed-window 9/minute", history.Limit{Algorithm: history.FixedWindow, Amount: "9", Calendar: "minute"}},
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

// player makes random calls of a limiter over a memory store, and records them.
type player struct {
	h            history.History
	limiter      *headgate.Limiter
	rng          *rand.Rand
	now          int64 // microseconds since base
	clockShift   int64 // by how many microseconds the store's clock is ahead
	lastID       int
	limit        headgate.Limit
	version      int // the version of limit
	reservations []reservation
	putBacks     int // how often the store's clock was put back; a part of ids

	recordedVersions map[int]bool
}

// reservation is a reservation that may still be settled or cancelled.
type reservation struct {
	id     int
	handle *headgate.Reservation
	key    string
}

func (p *player) addEvent(e history.Event) {
	e.T = p.now*1000 + int64(p.lastID)%900
	if n := len(p.h.Events); n > 0 {
		e.T = max(e.T, p.h.Events[n-1].T)
	}
	p.h.Events = append(p.h.Events, e)
}

func (p *player) addCall(verb, key, cost string) *history.Call {
	p.lastID++
	c := &history.Call{ID: p.lastID, Verb: verb}
	if cost != "" {
		c.Charges = []history.Charge{{Limit: "l", Version: p.version, Key: key, Cost: cost}}
	}
	p.addEvent(history.Event{Node: "a", Call: c})
	return c
}

func (p *player) addReturn(c *history.Call, d *headgate.Decision, err error) *history.Return {
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
	p.addEvent(history.Event{Node: "a", Return: r})
	return r
}

func (p *player) charge(key string, cost headgate.Cost) headgate.Charge {
	return headgate.Charge{Limit: p.limit, Key: key, Cost: cost}
}

// step makes a random call, perhaps with others that extend or settle it, or none.
func (p *player) step(ctx context.Context) {
	costs := []string{"1", "1", "1", "2", "0.5", "1.001", "3", "6"}
	text, key := costs[p.rng.IntN(len(costs))], fmt.Sprint("k", p.rng.IntN(2))
	cost := headgate.MustCost(text)
	switch n := p.rng.IntN(20); {
	case n < 11:
		c := p.addCall(history.Take, key, text)
		d, err := p.limiter.Take(ctx, p.charge(key, cost))
		p.addReturn(c, &d, err)
	case n < 13:
		c := p.addCall(history.Check, key, text)
		d, err := p.limiter.Check(ctx, p.charge(key, cost))
		p.addReturn(c, &d, err)
	case n < 14:
		c := p.addCall(history.Take, key, text)
		c.Charges = append(c.Charges, history.Charge{Limit: "l", Version: p.version, Key: "k2", Cost: "1"})
		d, err := p.limiter.Take(ctx, p.charge(key, cost), p.charge("k2", headgate.Units(1)))
		p.addReturn(c, &d, err)
	case n < 15:
		c := p.addCall(history.Take, key, text)
		c.Idem = fmt.Sprint("id", p.rng.IntN(5), key, text)
		if p.putBacks > 0 {
			c.Idem += fmt.Sprint(" ", p.putBacks)
		}
		c.Life = hour
		d, err := p.limiter.Once(c.Idem, time.Hour).Take(ctx, p.charge(key, cost))
		p.addReturn(c, &d, err)
		p.extendOrSettle(ctx, c.Idem, key, text)
	case n < 17:
		wait := time.Duration(p.rng.IntN(3)) * 700 * time.Millisecond
		c := p.addCall(history.Reserve, key, text)
		c.Wait = wait.Microseconds()
		r, err := p.limiter.Reserve(ctx, wait, p.charge(key, cost))
		if err != nil {
			p.addReturn(c, nil, err)
			return
		}
		ret := p.addReturn(c, &r.Decision, err)
		if r.Decision.Allowed {
			ret.StartAt = r.StartAt.UnixMicro()
			p.reservations = append(p.reservations, reservation{c.ID, r, key})
		}
	case n < 19 && len(p.reservations) > 0:
		p.correct(ctx)
	case n == 19 && p.rng.IntN(6) == 0:
		c := p.addCall(history.Reset, key, "1")
		c.Charges[0].Cost = ""
		_, err := p.limiter.Reset(ctx, p.limit, key)
		p.addReturn(c, nil, err)
		// A charge from before a reset must not be returned after the reset: see law/giveback.go.
		p.reservations = slices.DeleteFunc(p.reservations, func(res reservation) bool { return res.key == key })
	}
}

// correct settles or cancels a random reservation, and removes it from the list.
func (p *player) correct(ctx context.Context) {
	i := p.rng.IntN(len(p.reservations))
	res := p.reservations[i]
	p.reservations = slices.Delete(p.reservations, i, i+1)
	var corrections []headgate.Cost
	var err error
	c := p.addCall(history.Cancel, "", "")
	c.Of = res.id
	if p.rng.IntN(2) == 0 {
		corrections, err = res.handle.Cancel(ctx)
	} else {
		c.Verb, c.Actual = history.Settle, []string{[]string{"0", "0.5", "4"}[p.rng.IntN(3)]}
		corrections, err = res.handle.Settle(ctx, actualCost(c.Actual[0]))
	}
	r := p.addReturn(c, nil, err)
	for _, correction := range corrections {
		r.Corrected = append(r.Corrected, strings.TrimPrefix(cmp.Or(correction.String(), "0"), "-"))
	}
}

// actualCost parses a cost, of which "0" is not the zero Cost, which would be 1.
func actualCost(text string) headgate.Cost {
	if text == "0" {
		return headgate.Units(0)
	}
	return headgate.MustCost(text)
}

// change gives the limit a random definition, perhaps an earlier one.
func (p *player) change(t *testing.T) {
	index := p.rng.IntN(len(notations))
	limit, err := headgate.ParseNamed("l", notations[index].text)
	if err != nil {
		t.Fatal(err)
	}
	p.limit, p.version, p.reservations = limit, index+2, nil
	if !p.recordedVersions[p.version] {
		p.recordedVersions[p.version] = true
		l := notations[index].limit
		l.Name, l.Version = "l", p.version
		p.addEvent(history.Event{Limit: &l})
	}
}

// play records a number of steps with a limit, and the final states. With changeInterval above 0, the limit changes
// once in so many steps, and no final state is recorded; below 0, the store loses all its state once in so many. With
// jumps, the store's clock jumps.
func play(t *testing.T, seed uint64, index, steps, changeInterval int, jumps bool) *history.History {
	t.Helper()
	ctx := context.Background()
	p := &player{
		rng: rand.New(rand.NewPCG(seed, uint64(index))), now: int64(seed % 77_777_777),
		version: 1, recordedVersions: map[int]bool{},
	}
	clock := func() int64 { return base + p.now + p.clockShift }
	s := memory.New(&memory.Config{Clock: clock, Names: true})
	defer s.Close()
	p.limiter = headgate.New(s, &headgate.Config{Clock: clock})
	crash := func() { // the store loses all its state
		p.addEvent(history.Event{Fault: &history.Fault{Kind: history.Forget}})
		p.limiter = headgate.New(memory.New(&memory.Config{Clock: clock, Names: true}), &headgate.Config{Clock: clock})
		p.reservations = nil
	}
	notation := notations[index]
	limit, err := headgate.ParseNamed("l", notation.text)
	if err != nil {
		t.Fatal(err)
	}
	p.limit = limit
	recordedLimit := notation.limit
	recordedLimit.Name, recordedLimit.Version = "l", 1
	p.addEvent(history.Event{Limit: &recordedLimit})
	for range steps {
		if changeInterval > 0 && p.rng.IntN(changeInterval) == 0 {
			p.change(t)
		}
		switch p.rng.IntN(4) {
		case 0:
			p.now += p.rng.Int64N(30_000)
		case 1:
			p.now += p.rng.Int64N(900_000)
		case 2:
			p.now += p.rng.Int64N(3)
		}
		if jumps && p.rng.IntN(15) == 0 {
			by := []int64{second, 10 * second, -second, -5 * second, day, -day, hour / 3, 5 * day}[p.rng.IntN(8)]
			p.clockShift += by
			if by < 0 {
				// A correction of an earlier charge would return what has drained, which would then pass twice.
				p.reservations = nil
				p.putBacks++
			}
			p.addEvent(history.Event{Fault: &history.Fault{Kind: history.Clock, By: by}})
		}
		if changeInterval < 0 && p.rng.IntN(-changeInterval) == 0 {
			crash()
		}
		p.step(ctx)
	}
	for _, key := range []string{"k0", "k1", "k2"} {
		if changeInterval > 0 {
			break
		}
		status, err := p.limiter.Inspect(ctx, p.limit, key)
		if err != nil {
			t.Fatal(err)
		}
		p.addEvent(history.Event{State: &history.State{
			Limit: "l", Version: p.version, Key: key, Used: cmp.Or(status.Used.String(), "0"), At: status.At.UnixMicro(),
		}})
	}
	return &p.h
}

// TestHistoriesOfMemoryStoresAreAccepted checks that recorded histories of a memory store break no rule.
func TestHistoriesOfMemoryStoresAreAccepted(t *testing.T) {
	for index, n := range notations {
		t.Run(n.text, func(t *testing.T) {
			violations := 0
			for seed := range uint64(seedCount(60)) {
				for _, jumps := range []bool{false, true} {
					h := play(t, seed, index, 120, 0, jumps)
					for _, v := range check.Check(h) {
						t.Errorf("seed %d, jumps %v: %s", seed, jumps, v)
						violations++
					}
					if violations > 3 {
						t.FailNow()
					}
				}
			}
		})
	}
}

// TestHistoriesWithChangedLimitsAreAccepted changes the limit once in 60, 30 or 2 steps, and wants no violations.
func TestHistoriesWithChangedLimitsAreAccepted(t *testing.T) {
	for seed := range uint64(seedCount(400)) {
		h := play(t, seed, int(seed)%len(notations), 120, []int{60, 30, 2}[seed%3], false)
		for _, v := range check.Check(h) {
			t.Fatalf("seed %d: %s", seed, v)
		}
	}
}

// TestHistoriesWithLostStateAreAccepted lets the store lose all its state once in 40 steps, and wants no violations.
func TestHistoriesWithLostStateAreAccepted(t *testing.T) {
	for seed := range uint64(seedCount(400)) {
		h := play(t, seed, int(seed)%len(notations), 120, -40, false)
		for _, v := range check.Check(h) {
			t.Fatalf("seed %d: %s", seed, v)
		}
	}
}

// TestHistoriesWithLostAnswersAreAccepted removes answers or makes them unknown, and wants no violations.
func TestHistoriesWithLostAnswersAreAccepted(t *testing.T) {
	for seed := range uint64(seedCount(400)) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		h := play(t, seed, int(seed)%len(notations), 120, 0, seed%5 == 0)
		events := h.Events[:0]
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
			events = append(events, e)
		}
		h.Events = events
		for _, v := range check.Check(h) {
			t.Fatalf("seed %d: %s", seed, v)
		}
	}
}

// seedCount returns how many seeds to play: n, with make test n/6, times HEADGATE_TEST_HISTORIES if it is set.
func seedCount(n int) int {
	n = tier.Pick(n/6, n, n)
	times, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_HISTORIES"))
	if err != nil {
		return n
	}
	return n * times
}
