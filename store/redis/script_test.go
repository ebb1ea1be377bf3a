package redis

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

const testTime = int64(1_790_000_000_000_000) // the Now of ops, in us, in place of the server's clock

// newSeed returns the seed of a random test, and logs it.
func newSeed(tb testing.TB) uint64 {
	tb.Helper()
	seed := tier.Seed()
	tb.Logf("seed %d", seed)
	return seed
}

func openTest(tb testing.TB, url string, cfg *Config) *Store {
	tb.Helper()
	s, err := Open(context.Background(), url, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func apply(tb testing.TB, s *Store, ops ...law.Op) []law.Outcome {
	tb.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(context.Background(), ops, outs); err != nil {
		tb.Fatal(err)
	}
	for i := range outs {
		if outs[i].Err != nil {
			tb.Fatal(outs[i].Err)
		}
	}
	return outs
}

// randomValue returns a value of any magnitude from 1 to maxValue. At least one in eight is within 2 of maxValue.
func randomValue(g *rand.Rand, maxValue int64) int64 {
	v := g.Int64N(int64(1)<<(1+g.IntN(53))) - int64(g.IntN(3)) + 1
	if g.IntN(8) == 0 {
		v = maxValue - g.Int64N(3)
	}
	return min(max(v, 1), maxValue)
}

// TestScriptArithmeticIsExactUpTo2To53 compares the arithmetic of the scripts with big integers.
func TestScriptArithmeticIsExactUpTo2To53(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	g := rand.New(rand.NewPCG(1, 2))
	const n = 4000
	args := []string{string(make([]byte, headSize))} // an empty head
	type row struct{ a, b, c, maxValue int64 }
	var rows []row
	for range n {
		r := row{randomValue(g, law.Max), randomValue(g, law.Max), randomValue(g, law.Max), law.Max}
		if g.IntN(4) == 0 {
			r.maxValue = 1<<32 - 1
		}
		if g.IntN(3) == 0 { // just below, at and above a multiple
			r.a = min(max(r.b*(law.Max/r.b)-1+g.Int64N(3), 0), law.Max)
		}
		rows = append(rows, r)
		for _, v := range []int64{r.a, r.b, r.c, r.maxValue} {
			args = append(args, strconv.FormatInt(v, 10))
		}
	}
	const body = `
local res = {}
for i = 2, #ARGV, 4 do
  local a, b, c, most = ARGV[i] + 0, ARGV[i + 1] + 0, ARGV[i + 2] + 0, ARGV[i + 3] + 0
  res[#res + 1] = fmt('%.0f %.0f %.0f %.0f', floor(a / b), ceil_div(a, b), add_steps(a, b, c), rescale(a, b, c, most))
end
return res`
	script := headText + readLua("cells") + body
	got, err := s.client.Do(context.Background(),
		s.client.B().Eval().Script(script).Numkeys(0).Arg(args...).Build()).AsStrSlice()
	if err != nil || len(got) != n {
		t.Fatalf("got %d results, %v; want %d", len(got), err, n)
	}
	limit := big.NewInt(law.Max)
	for i, r := range rows {
		ceil := r.a / r.b
		if r.a%r.b > 0 {
			ceil++
		}
		steps := new(big.Int).Mul(big.NewInt(r.b), big.NewInt(r.c))
		steps.Add(steps, big.NewInt(r.a))
		if steps.Cmp(limit) > 0 {
			steps = limit
		}
		scaled, remainder := new(big.Int).Mul(big.NewInt(r.a), big.NewInt(r.c)), new(big.Int)
		scaled.QuoRem(scaled, big.NewInt(r.b), remainder)
		if remainder.Sign() > 0 {
			scaled.Add(scaled, big.NewInt(1))
		}
		if maxValue := big.NewInt(r.maxValue); scaled.Cmp(maxValue) > 0 {
			scaled = maxValue
		}
		if want := fmt.Sprint(r.a/r.b, ceil, steps, scaled); got[i] != want {
			t.Errorf("%+v: quotient, rounded up, a+b*c, a*c/b: got %s, want %s", r, got[i], want)
		}
	}
}

// sliceLedger is a law.Ledger over a slice.
type sliceLedger struct{ entries []law.Entry }

func (l *sliceLedger) Sum(after, upto int64) (sum int64) {
	for _, e := range l.entries {
		if e.Granted && e.ExpiresAt > after && e.ExpiresAt <= upto {
			sum += e.Cost
		}
	}
	return sum
}

func (l *sliceLedger) Freed(after, need int64) int64 {
	list := slices.Clone(l.entries)
	slices.SortFunc(list, func(a, b law.Entry) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	for _, e := range list {
		if e.Granted && e.ExpiresAt > after && l.Sum(after, e.ExpiresAt) >= need {
			return e.ExpiresAt
		}
	}
	return law.Never
}

func (l *sliceLedger) Entry(number int64) (credits, expiresAt int64) {
	for _, e := range l.entries {
		if e.Number == number && e.Granted && e.Cost > 0 {
			return e.Cost, e.ExpiresAt
		}
	}
	return 0, 0
}

// applyRecord moves the changes of a record to l. The last new entry gets the number that the store gave it.
func (l *sliceLedger) applyRecord(r *law.Record, number int64) {
	if r.Clear {
		l.entries = nil
	}
	entry := func(number int64) *law.Entry {
		return &l.entries[slices.IndexFunc(l.entries, func(e law.Entry) bool { return e.Number == number })]
	}
	for _, n := range r.Renew {
		entry(n.Number).ExpiresAt = n.To
	}
	for _, n := range r.Lower {
		entry(n.Number).Cost -= n.Credits
	}
	if n := len(r.Add); n > 0 {
		r.Add[n-1].Number = number
	}
	l.entries = append(l.entries, r.Add...)
	for _, receipt := range r.Admit {
		r.SetEntryNumber(&receipt.Outcome)
		r.Receipts.(mapReceipts)[receipt.ID] = receipt
	}
	r.Clear, r.Renew, r.Lower, r.Add, r.Admit = false, nil, nil, nil, nil
}

// mapReceipts is a law.Receipts over a map.
type mapReceipts map[string]law.Receipt

func (r mapReceipts) Receipt(id string) (law.Receipt, bool) {
	receipt, ok := r[id]
	return receipt, ok
}

// TestLimitsOfAnySizeAreDecidedAsByPackageLaw checks outcomes for parameters and costs from the whole valid range. It
// changes the parameters on cells in use.
func TestLimitsOfAnySizeAreDecidedAsByPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	seed := newSeed(t)
	g := rand.New(rand.NewPCG(seed, 0))
	rounds, now := tier.Pick(600, 6000, 6000), testTime
	var record *law.Record
	admitted := 0
	for round := range rounds {
		if round%12 == 0 {
			record = &law.Record{Log: &sliceLedger{}}
		}
		op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: "l", Key: fmt.Sprint(round / 12)}}
		p := &op.Params
		for {
			*p = law.Params{
				Kind: law.Kind(1 + g.IntN(3)), Anchor: law.Anchor(g.IntN(2)), Unit: randomValue(g, law.Max),
				Capacity: randomValue(g, law.Max),
				Step:     randomValue(g, 1<<50), Drain: randomValue(g, law.Max),
			}
			if g.IntN(4) == 0 {
				p.Block = randomValue(g, 1<<50)
			}
			if p.Kind == law.Window {
				p.Capacity = randomValue(g, 1<<32-1)
			}
			op.Cost, op.Count, op.Partial = randomValue(g, p.Capacity), randomValue(g, 5), g.IntN(2) == 0
			now = min(max(now+g.Int64N(int64(1)<<(1+g.IntN(50)))-g.Int64N(int64(1)<<(1+g.IntN(40))), 1), 1<<51)
			op.Now = now
			if op.Deferred = p.Kind == law.Bucket && p.Anchor == law.Own && !op.Partial && g.IntN(2) == 0; op.Deferred {
				op.Ceiling = p.Ceiling(randomValue(g, 1<<50))
			}
			if op.Valid() == nil {
				break
			}
		}
		want := make([]law.Outcome, 1)
		before := record.State
		law.Apply([]law.Op{op}, want, testTime, []*law.Record{record})
		got := apply(t, s, op)[0]
		record.Log.(*sliceLedger).applyRecord(record, got.EntryNumber)
		got.EntryNumber, want[0].EntryNumber = 0, 0
		if got.Granted > 0 {
			admitted++
		}
		if got != want[0] {
			t.Fatalf("round %d of seed %d: %+v on %+v:\n got %+v\nwant %+v", round, seed, op, before, got, want[0])
		}
	}
	if admitted < rounds/10 || admitted > rounds*9/10 {
		t.Errorf("got %d of %d admitted, want 10%% to 90%%: else the limits drawn prove little", admitted, rounds)
	}
}
