package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
	"github.com/headgate/headgate/internal/load"
)

// size is a number of keys, and by how many callers they are asked for.
type size struct {
	keys    int
	callers []int
}

// sized returns the comparisons of a store with few or many keys.
func (b *bench) sized(f *field) (list []compare.Comparison) {
	for _, z := range f.sizes {
		var st *stand
		for _, callers := range z.callers {
			name := fmt.Sprintf("%s-keys-%d-%d", f.name, z.keys, callers)
			if st == nil {
				st = newStand(f, nil)
			}
			list = append(list, compare.Comparison{
				Name: name, Title: fmt.Sprintf("%s, %s keys, %s", f.title, grouped(z.keys), count(callers, "caller")),
				Goals: f.goals[name], Shared: &st.shared,
				Cells: func(ctx context.Context) ([]compare.Cell, error) {
					if st.keys == nil {
						st.keys = users(z.keys)
					}
					if err := st.open(ctx); err != nil {
						return nil, err
					}
					return st.row(func(rng *rand.Rand) int { return rng.IntN(z.keys) }, callers), nil
				},
			})
		}
	}
	return list
}

// grouped writes a number in groups of three digits.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// roomy returns the stand for new keys: one of its own where a full store takes none.
func (b *bench) roomy(f *field, at func(keys []string) *stand) *stand {
	if !f.inProcess {
		return at(b.many)
	}
	if b.forNew == nil {
		g := *f
		g.url = func(ctx context.Context, _ int) (string, func(), error) { return f.url(ctx, newKeysMax) }
		b.forNew = newStand(&g, b.thousand)
	}
	return b.forNew
}

// newKeysMax is how many new keys are asked about in a run, at most.
const newKeysMax = 30_000_000

// kinds are the limits of a request on several: what each counts, and how many keys it has.
var kinds = []struct {
	name string
	keys int
}{{"user", 100_000}, {"team", 10_000}, {"organisation", 100}, {"address", 100_000}, {"route", 1000}, {"region", 10}}

func kindKeys(limits, most int) [][]string {
	keys := make([][]string, limits)
	for i := range keys {
		keys[i] = make([]string, min(kinds[i].keys, most))
		for k := range keys[i] {
			keys[i][k] = fmt.Sprintf("%s:%d", kinds[i].name, k)
		}
	}
	return keys
}

func kindLimits(limits int, notation string) []headgate.Limit {
	list := make([]headgate.Limit, limits)
	for i := range list {
		l, err := headgate.ParseNamed(kinds[i].name+"."+notation[len("token-bucket "):len("token-bucket ")+2], notation)
		if err != nil {
			panic(err) // the notations are constants
		}
		list[i] = l
	}
	return list
}

// many returns the cells of requests on several limits at once, admitted all or none.
func (st *stand) many(limits int, ids bool, callers int) []compare.Cell {
	keys := kindKeys(limits, 1<<30)
	m := gate.Many{
		Limits: kindLimits(limits, "token-bucket 1000000000/h"), Keys: keys,
		IDs: ids, Charged: headgate.Units(2), Settled: headgate.Units(1),
	}
	ask := m.Ask(st.store)
	ours := st.ours(callers, func(ctx context.Context, client int, rng *rand.Rand) (bool, error) {
		charged, err := ask(ctx, client, rng)
		return len(charged) > 0, err
	})
	few := kindKeys(limits, 5)
	total := 0
	for i := range few {
		for k := range few[i] {
			few[i][k] = fresh()
		}
		total += len(few[i])
	}
	counted := gate.Many{
		Limits: kindLimits(limits, "token-bucket 10/s burst 5"), Keys: few,
		IDs: ids, Settled: headgate.Units(1),
	}
	ours.Exact = compare.Audit(callers, total, 10, 5, counted.Ask(st.store))
	return append([]compare.Cell{ours}, st.against(callers, func(o *other, _ int) (load.Ask, bool) {
		if o.many == nil {
			return nil, false
		}
		ask := o.many(keys, ids)
		return ask, ask != nil
	})...)
}

// batches returns the cells of callers that ask for many decisions in a call.
func (st *stand) batches(n int) []compare.Cell {
	const callers = 4
	pick := func(rng *rand.Rand) int { return rng.IntN(len(st.keys)) }
	ours := st.ours(callers, nil)
	ours.Measure = compare.Weighted(callers, n, gate.AskMany(st.store, always, st.keys, n))
	single := compare.Cell{
		Side: compare.Self, Name: gate.Name, At: "one a call", Meter: st.read,
		Measure: st.loop(callers, gate.AskPicked(st.store, always, st.keys, pick)),
	}
	cells := []compare.Cell{ours, single}
	for i := range st.others {
		if o := &st.others[i]; o.batch != nil {
			clients := callers
			if o.clients > 0 {
				clients = o.clients
			}
			cells = append(cells, compare.Cell{
				Side: o.side, Name: o.name, At: fmt.Sprintf("%d a statement, %s", n, count(clients, "client")),
				Meter: st.read, Measure: compare.Weighted(clients, n, o.batch(n)),
			})
		}
	}
	return cells
}

// several returns some keys without repetition, in order, as a batch of a bare statement takes them.
func several(keys []string, n int, rng *rand.Rand) []string {
	seen := make(map[string]bool, n)
	list := make([]string, 0, n)
	for len(list) < min(n, len(keys)) {
		if k := keys[rng.IntN(len(keys))]; !seen[k] {
			seen[k] = true
			list = append(list, k)
		}
	}
	slices.Sort(list)
	return list
}
