package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestLoneChargesMatchPackageLaw charges few cells one by one. lone.lua decides some of the ops, and leaves the others
// to batch.lua.
func TestLoneChargesMatchPackageLaw(t *testing.T) {
	t.Parallel()
	charges := tier.Pick(1000, 4000, 4000)
	for name, s := range map[string]*Store{
		"single": openTest(t, dbtest.Redis(t), nil), "slots": openSlots(t, slotsURL(t)),
	} {
		seed := newSeed(t)
		g := rand.New(rand.NewPCG(seed, 0))
		records, now, loneOps, undecided := map[string]*law.Record{}, testTime, 0, 0
		for n := range charges {
			now += g.Int64N(40) - 5
			op := takeOne("l", fmt.Sprint(n/40, g.IntN(3)), law.Params{
				Kind: law.Bucket, Anchor: law.Anchor(g.IntN(2)), Unit: 3, Capacity: 6 + 6*g.Int64N(3),
				Step: 5, Drain: 1 + g.Int64N(4),
			}, now)
			op.Cost, op.Count = 1+g.Int64N(8), 1+g.Int64N(2)*g.Int64N(3)
			switch g.IntN(24) {
			case 0:
				op.Params.Block = 1 + g.Int64N(20)
			case 1:
				op.Params.Unit = 2
			case 2:
				op.Partial = true
			case 3:
				op.Ceiling = 1 + g.Int64N(20)
			case 4:
				op.Now -= 2_000_000 + g.Int64N(3)
			case 5:
				op.Verb, op.TTL = law.Block, g.Int64N(10)
			case 6:
				op.Params.Kind, op.Params.Anchor = law.Window, law.Own
			case 7:
				op.Params.Drain = law.Max
			case 8, 9:
				op.Verb = law.Reset
			case 10:
				op.Params.Step = 1
			}
			r := records[op.Cell.Key]
			if r == nil {
				r = &law.Record{}
				records[op.Cell.Key] = r
			}
			if s.isLone([]law.Op{op}) {
				// A cost that never fits shows whether lone.lua would decide, and changes nothing.
				v, err := s.sendOne(t.Context(), s.loneCall(&law.Op{
					Verb: law.Take, Cell: op.Cell, Params: op.Params, Cost: op.Cost, Count: 1_000_000_000, Now: op.Now,
				})).ToString()
				if err != nil {
					t.Fatal(err)
				}
				if loneOps++; v == "" {
					undecided++
				}
			}
			before, want := r.State, make([]law.Outcome, 1)
			law.Apply([]law.Op{op}, want, testTime, []*law.Record{r})
			if got := apply(t, s, op)[0]; got != want[0] {
				t.Fatalf("%s: charge %d of seed %d: %+v on %+v:\n got %+v\nwant %+v", name, n, seed, op, before,
					got, want[0])
			}
		}
		if undecided < charges/80 || undecided > loneOps/2 {
			t.Errorf("%s: lone.lua left %d of %d to batch.lua: the ops drawn prove little", name, undecided, loneOps)
		}
	}
}

// TestLoneScriptLeavesCellsThatAreNotPlain checks that lone.lua does not change such cells: batch.lua decides them.
func TestLoneScriptLeavesCellsThatAreNotPlain(t *testing.T) {
	t.Parallel()
	s := openTest(t, dbtest.Redis(t), nil)
	slower := hourly
	slower.Step = 2 * hourly.Step
	take := takeOne("l", "returned", hourly, 0)
	out := apply(t, s, take)[0]
	block := takeOne("l", "blocked", hourly, 0)
	block.Verb, block.TTL = law.Block, 60_000_000
	for _, op := range []law.Op{law.Back(&take, &out, 500), block, takeOne("l", "step", slower, 0)} {
		apply(t, s, op)
	}
	admin(t, s, "SET", s.cellKey(law.Cell{Limit: "l", Key: "newer"}), "2:1 1 0 0")
	for _, op := range []law.Op{
		take, takeOne("l", "blocked", hourly, 0), takeOne("l", "step", hourly, 0),
		takeOne("l", "newer", hourly, 0),
	} {
		name := s.cellKey(op.Cell)
		before, _ := admin(t, s, "GET", name).ToString()
		if v, err := s.sendOne(t.Context(), s.loneCall(&op)).ToString(); v != "" || err != nil {
			t.Errorf("%s: got %q, %v; want no answer", op.Cell.Key, v, err)
		}
		if after, _ := admin(t, s, "GET", name).ToString(); after != before {
			t.Errorf("%s: got the cell %s, want %s", op.Cell.Key, after, before)
		}
	}
}

// TestAMalformedAnswerOfLoneScriptIsErrUnknownOutcome checks decodeLone: the script has run, and may have charged.
func TestAMalformedAnswerOfLoneScriptIsErrUnknownOutcome(t *testing.T) {
	op := takeOne("l", "k", hourly, 0)
	const clock = "\x00\x00\x00\x00\x00\x00\x00\x00"
	cell := fmt.Sprintf("1 1000 0 5 %d %d 9 0 0 ", op.Params.Unit, op.Params.Step)
	for _, answer := range []string{
		"+", "+" + clock, "?" + clock + cell, "+" + clock + cell + "more", "+" + clock + "1 2 3",
		"-" + clock + cell, // a refusal although the cell has room
	} {
		var out law.Outcome
		decided, err := decodeLone(answer, &op, &out)
		if decided || !errors.Is(classify("apply", err), store.ErrUnknownOutcome) {
			t.Errorf("%q: got %v, %v; want ErrUnknownOutcome", answer, decided, err)
		}
	}
}

// TestLaneRetriesNoChargeAndReplacesABrokenConnection checks the dedicated connection of lone charges: a charge that
// was sent on it is not sent again, and a new connection replaces a broken one.
func TestLaneRetriesNoChargeAndReplacesABrokenConnection(t *testing.T) {
	s := openTest(t, startServer(t).DSN, nil)
	op, used := takeOne("l", "k", hourly, 0), int64(0)
	// waitForConn waits for the dedicated connection, and keeps it from being idle before its next use.
	waitForConn := func() {
		t.Helper()
		await.Until(t, "a connection", func() bool { return s.lane.acquire(context.Background()) != nil })
		s.lane.lastUsed = sched.Now().Add(time.Hour)
		s.lane.unsetBusy()
	}
	for round := range 2 {
		waitForConn()
		used += op.Cost
		if out := apply(t, s, op)[0]; out.Used != used {
			t.Errorf("round %d: got used %d, want %d", round, out.Used, used)
		}
		if round == 0 {
			admin(t, s, "SCRIPT", "FLUSH")
			used += op.Cost
			if out := apply(t, s, op)[0]; out.Used != used {
				t.Errorf("got used %d after SCRIPT FLUSH, want %d", out.Used, used)
			}
			waitForConn()
			admin(t, s, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			err := s.Apply(context.Background(), []law.Op{op}, make([]law.Outcome, 1))
			if !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("got %v, want ErrUnknownOutcome on the broken connection", err)
			}
			op.Cell.Key, used = "another", 0
		}
	}
	s.Close()
	if conn := s.lane.acquire(context.Background()); conn != nil || s.lane.conn != nil {
		t.Error("the connection is open after Close")
	}
}
