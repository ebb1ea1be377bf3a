package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// randomSmallLimit returns a random limit that up to 18 units fill and up to 324 us empty. Some of the limits block,
// count in another unit, drain at once or have windows.
func randomSmallLimit(g *rand.Rand) law.Params {
	p := law.Params{
		Kind: law.Bucket, Anchor: law.Anchor(g.IntN(2)), Unit: 3, Capacity: 12 + 12*g.Int64N(3),
		Step: 1 + 4*g.Int64N(3), Drain: 1 + g.Int64N(4),
	}
	switch g.IntN(60) {
	case 0:
		p.Block = 1 + g.Int64N(20)
	case 1:
		p.Unit = 2
	case 2:
		p.Drain = law.Max
	case 3:
		p.Kind, p.Anchor, p.Drain = law.Window, law.Own, 0
	}
	return p
}

// randomSmallRequest returns a random request with one to four charges, and for each the number of its cell. The
// charges of a cell have the same parameters.
func randomSmallRequest(g *rand.Rand, group, era, cells int, limits [2]law.Params, now int64) (
	ops []law.Op, cell []int,
) {
	params := map[int]law.Params{}
	for range 1 + g.IntN(4) {
		k := g.IntN(cells)
		if _, ok := params[k]; !ok {
			params[k] = limits[g.IntN(2)]
			if g.IntN(40) == 0 {
				params[k] = randomSmallLimit(g)
			}
		}
		op := law.Op{
			Verb: law.Take, Group: uint32(group), Cell: law.Cell{Limit: "l", Key: fmt.Sprint(era, k)},
			Params: params[k], Cost: 1 + g.Int64N(4), Count: 1 + g.Int64N(2)*g.Int64N(3), Now: now,
		}
		if g.IntN(30) == 0 {
			op.Ceiling = 1 + g.Int64N(20)
		}
		if g.IntN(60) == 0 {
			op.Now -= 2_000_000 + g.Int64N(3)
		}
		ops, cell = append(ops, op), append(cell, k)
	}
	switch {
	case g.IntN(20) == 0:
		for k := range ops {
			ops[k].Verb = law.Check
		}
	case len(ops) == 1 && g.IntN(20) == 0:
		ops[0].Verb, ops[0].TTL = law.Block, g.Int64N(10)
	case len(ops) == 1 && g.IntN(3) == 0:
		ops[0].Partial = true
	}
	return ops, cell
}

// TestGroupsOfPlainChargesMatchPackageLaw sends batches of requests with one to four charges of few cells. Some
// requests charge a cell twice, and some are not plain.
func TestGroupsOfPlainChargesMatchPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	seed := newSeed(t)
	g := rand.New(rand.NewPCG(seed, 0))
	batches := tier.Pick(300, 2000, 2000)
	const cells = 8
	var records [cells]*law.Record
	now, admitted, refused := testTime, 0, 0
	for n := range batches {
		if n%20 == 0 {
			for i := range records {
				records[i] = &law.Record{}
			}
		}
		now += g.Int64N(20) - 3
		var ops []law.Op
		var opRecords []*law.Record
		limits := [2]law.Params{randomSmallLimit(g), randomSmallLimit(g)}
		for group := range 1 + g.IntN(8) {
			request, cellNumbers := randomSmallRequest(g, group, n/20, cells, limits, now)
			ops = append(ops, request...)
			for _, k := range cellNumbers {
				opRecords = append(opRecords, records[k])
			}
		}
		want := make([]law.Outcome, len(ops))
		law.Apply(ops, want, testTime, opRecords)
		for i, got := range apply(t, s, ops...) {
			if got != want[i] {
				t.Fatalf("batch %d of seed %d, op %d of %+v:\n got %+v\nwant %+v", n, seed, i, ops, got, want[i])
			}
		}
		for i := 0; i < len(ops); {
			j := law.GroupEnd(ops, i)
			isAdmitted := true
			for k := i; k < j; k++ {
				isAdmitted = isAdmitted && want[k].Granted == ops[k].Count
			}
			switch {
			case j == i+1 || ops[i].Verb != law.Take:
			case isAdmitted:
				admitted++
			default:
				refused++
			}
			i = j
		}
	}
	if admitted < refused/4 || refused < admitted/4 {
		t.Errorf("got %d requests with several charges admitted, %d refused: the limits drawn prove little",
			admitted, refused)
	}
}

// TestGroupsReadAndWriteACellOnce checks a batch of 40 requests on 51 cells: 40 users, ten teams and one organisation.
func TestGroupsReadAndWriteACellOnce(t *testing.T) {
	s := openTest(t, startServer(t).DSN, nil)
	var ops []law.Op
	for n := range 40 {
		for _, key := range []string{fmt.Sprint("user:", n), fmt.Sprint("team:", n%10), "organisation"} {
			op := takeOne("l", key, hourly, 0)
			op.Params.Capacity, op.Group = 1_000_000, uint32(n)
			ops = append(ops, op)
		}
	}
	apply(t, s, ops...)
	before := commandCalls(t, s)
	outs := apply(t, s, ops...)
	after := commandCalls(t, s)
	if out := outs[len(outs)-1]; out.Granted != 1 || out.Used < 79_000 {
		t.Errorf("the last charge of the organisation: got %+v, want about 80,000 of 80 charges of 1000 in use", out)
	}
	for command, maxCalls := range map[string]int{"get": 51, "set": 51, "evalsha": 1} {
		if n := after[command] - before[command]; n < 1 || n > maxCalls {
			t.Errorf("got %d %s for 51 cells, want at most %d", n, command, maxCalls)
		}
	}
}

var commandCallsPattern = regexp.MustCompile(`cmdstat_([a-z|]+):calls=(\d+)`)

// commandCalls returns how often the server has executed each command.
func commandCalls(tb testing.TB, s *Store) map[string]int {
	tb.Helper()
	info, err := admin(tb, s, "INFO", "commandstats").ToString()
	if err != nil {
		tb.Fatal(err)
	}
	n := map[string]int{}
	for _, m := range commandCallsPattern.FindAllStringSubmatch(info, -1) {
		n[m[1]], _ = strconv.Atoi(m[2])
	}
	return n
}

// TestAMalformedAnswerOfGroupsScriptIsErrUnknownOutcome checks plainCells.decode: the script has run.
func TestAMalformedAnswerOfGroupsScriptIsErrUnknownOutcome(t *testing.T) {
	ops := []law.Op{takeOne("l", "a", hourly, testTime), takeOne("l", "b", hourly, testTime)}
	clock := strings.Repeat("\x00", 8)
	plain, _ := findPlain(ops, []int{0, 1})
	c := &call{index: []int{0, 1}, plainCells: plain}
	fullCell := fmt.Sprintf("1 10000 0 %d 1000 %d %d 0 0 ", testTime, hourly.Step, testTime+hourly.Step)
	for name, answer := range map[string]string{
		"too short":                   clock[1:],
		"no sign":                     clock,
		"an unknown sign":             clock + "*;",
		"one cell":                    clock + "+",
		"three cells":                 clock + "+;;",
		"half a cell":                 clock + "+" + fullCell[:20] + ";",
		"no room for what is granted": clock + "+" + fullCell + ";",
		"granted, and not plain":      clock + "+!;",
		"room for what is refused":    clock + "-;",
		"refused, and not plain":      clock + "-!;",
		"nothing about the rest":      clock + "?!;",
		"more than was asked":         clock + "+;" + "more",
	} {
		outs := make([]law.Outcome, 2)
		if err := c.decode(answer, ops, outs); !errors.Is(classify("apply", err), store.ErrUnknownOutcome) {
			t.Errorf("%s: got %v, %+v; want ErrUnknownOutcome", name, err, outs)
		}
	}
	for name, answer := range map[string]string{"granted": clock + "+;", "refused": clock + "-" + fullCell + ";"} {
		if err := c.decode(answer, ops, make([]law.Outcome, 2)); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
}
