package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/store"
)

// limiter is a headgate.Limiter or a client.Client.
type limiter interface {
	headgate.Taker
	headgate.Waiter
	headgate.Reserver
	headgate.Settler
	headgate.Leaser
	headgate.Operator
	Allow(ctx context.Context, limit headgate.Limit, key string) (headgate.Decision, error)
}

type charge struct {
	headgate.Charge
	of      *limit
	version int
}

// recorded returns the charge as a history has it.
func (g *charge) recorded() history.Charge {
	return record.Charge(&g.of.versions[g.version-1].recorded, g.Charge)
}

func plain(charges []charge) []headgate.Charge {
	list := make([]headgate.Charge, len(charges))
	for i, c := range charges {
		list[i] = c.Charge
	}
	return list
}

type caller struct {
	w *world
	n *node
}

func (c *caller) run() {
	for {
		c.w.s.sleep(c.w.pause())
		if c.w.s.now() >= c.w.end { // a call begun now may have no time to end
			return
		}
		c.step()
	}
}

// deeds has what callers do, with its share in percent.
var deeds = []struct {
	often int
	do    func(*caller, context.Context)
}{
	{40, func(c *caller, ctx context.Context) { c.take(ctx, c.charges(1)) }},
	{10, (*caller).allow},
	{12, func(c *caller, ctx context.Context) { c.take(ctx, c.charges(2+c.w.s.rng.IntN(2))) }},
	{4, (*caller).check},
	{10, (*caller).once},
	{9, (*caller).reserve},
	{5, (*caller).hold},
	{3, func(c *caller, _ context.Context) { c.await() }},
	{3, func(c *caller, _ context.Context) { c.wait() }},
	{4, (*caller).operate},
}

func (c *caller) step() {
	ctx, cancel := c.context()
	defer cancel()
	n := c.w.s.rng.IntN(100)
	for _, d := range deeds {
		if n < d.often {
			d.do(c, ctx)
			return
		}
		n -= d.often
	}
}

// context mostly outlasts a call, and sometimes ends within it.
func (c *caller) context() (context.Context, context.CancelFunc) {
	d := 20 * time.Second
	if c.w.s.chance(c.w.cancels) {
		d = c.w.s.between(1, 30*time.Millisecond)
	}
	return sched.WithTimeout(context.Background(), d)
}

// charges returns random charges of limits that are taken, not held.
func (c *caller) charges(n int) []charge {
	var list []charge
	for range n {
		l := c.w.taken[c.w.s.rng.IntN(len(c.w.taken))]
		list = append(list, c.charge(l))
	}
	return list
}

func (c *caller) charge(l *limit) charge {
	g := l.charge(c.n.home, c.w.keys[c.w.s.rng.IntN(len(c.w.keys))])
	switch c.w.s.rng.IntN(6) {
	case 0:
		g.Cost = headgate.Units(int64(1 + c.w.s.rng.IntN(5)))
	case 1:
		g.Cost = headgate.MustCost(strconv.Itoa(c.w.s.rng.IntN(3)) + "." + strconv.Itoa(1+c.w.s.rng.IntN(9)))
	}
	if c.w.s.rng.IntN(8) == 0 {
		g.Keep = headgate.Percent(int64(5 + c.w.s.rng.IntN(60)))
	}
	return g
}

// call records that the caller asks, and returns the number of the call.
func (c *caller) call(call history.Call, charges []charge) int {
	for i := range charges {
		call.Charges = append(call.Charges, charges[i].recorded())
	}
	if c.w.net != nil {
		call.Front = "server"
	}
	return c.w.rec.Call(c.n.name, call)
}

// done records the answer of a call that has no decision.
func (c *caller) done(id int, err error) { c.w.rec.Return(c.n.name, id, record.Answer{Err: err}) }

func (c *caller) take(ctx context.Context, charges []charge) {
	for {
		id := c.call(history.Call{Verb: history.Take}, charges)
		d, err := c.n.ask.Take(ctx, plain(charges)...)
		c.w.rec.Decided(c.n.name, id, d, err)
		// Those that come again at once are what package deny is for.
		if err != nil || d.Allowed || !c.w.s.chance(500) {
			return
		}
		c.w.s.sleep(c.w.s.between(1, 20*time.Millisecond))
	}
}

func (c *caller) allow(ctx context.Context) {
	g := c.charges(1)
	g[0].Cost, g[0].Keep = headgate.Cost{}, headgate.Headroom{}
	for range 1 + c.w.s.rng.IntN(4) {
		id := c.call(history.Call{Verb: history.Take}, g)
		d, err := c.n.ask.Allow(ctx, g[0].Limit, g[0].Key)
		c.w.rec.Decided(c.n.name, id, d, err)
	}
}

func (c *caller) check(ctx context.Context) {
	g := c.charges(1 + c.w.s.rng.IntN(2))
	id := c.call(history.Call{Verb: history.Check}, g)
	d, err := c.n.ask.Check(ctx, plain(g)...)
	c.w.rec.Decided(c.n.name, id, d, err)
}

// once takes under an id, sometimes twice, and settles or cancels it sometimes.
func (c *caller) once(ctx context.Context) {
	g := c.charges(1 + c.w.s.rng.IntN(2))
	if g[0].of == g[len(g)-1].of { // an id names one request of each cell
		g = g[:1]
	}
	c.w.ids++
	name := "id-" + strconv.Itoa(c.w.ids)
	first := 0
	var err error
	for range 1 + c.w.s.rng.IntN(3) {
		var d headgate.Decision
		id := c.call(history.Call{Verb: history.Take, Idem: name, Life: idLife.Microseconds()}, g)
		first = cmp.Or(first, id)
		d, err = c.n.ask.Once(name, idLife).Take(ctx, plain(g)...)
		c.w.rec.Decided(c.n.name, id, d, err)
		if err == nil && !d.Allowed {
			return
		}
		c.w.s.sleep(c.w.s.between(1, time.Second))
	}
	if err != nil {
		return
	}
	more := c.extend(ctx, name, g)
	switch c.w.s.rng.IntN(3) {
	case 0:
		c.settle(ctx, name, first, g)
	case 1:
		id := c.call(history.Call{Verb: history.Cancel, Idem: name, Of: first}, g)
		back, err := c.n.ask.Once(name, 0).Cancel(ctx, plain(g)...)
		c.w.rec.Return(c.n.name, id, record.Answer{Corrected: back, Err: err})
	}
	if c.w.s.chance(300) { // an extension that comes late
		_ = c.extendTo(ctx, name, more)
	}
	if c.w.s.chance(300) { // a duplicate that comes late, or another attempt
		id := c.call(history.Call{Verb: history.Take, Idem: name, Life: idLife.Microseconds()}, g)
		d, err := c.n.ask.Once(name, idLife).Take(ctx, plain(g)...)
		c.w.rec.Decided(c.n.name, id, d, err)
	}
}

// extend extends what was taken under an id, up to twice. It asks again sometimes, and mostly if
// it does not know whether it was done. It returns what it asked for last.
func (c *caller) extend(ctx context.Context, name string, g []charge) []charge {
	all := slices.Clone(g)
	if len(all) > 1 && c.w.s.chance(300) {
		i := c.w.s.rng.IntN(len(all))
		all = all[i : i+1]
	}
	for range c.w.s.rng.IntN(3) {
		for i := range all {
			if len(all) == 1 || c.w.s.chance(800) { // of several one may stay as it is
				all[i].Cost = plus(all[i].Cost, int64(1+c.w.s.rng.IntN(30)))
			}
		}
		err := c.extendTo(ctx, name, all)
		for err == nil && c.w.s.chance(200) || errors.Is(err, store.ErrUnknownOutcome) && c.w.s.chance(800) {
			c.w.s.sleep(c.w.s.between(1, time.Second))
			err = c.extendTo(ctx, name, all)
		}
		c.w.s.sleep(c.w.s.between(1, 5*time.Second))
	}
	return all
}

// extendTo makes one attempt to extend what was taken under an id.
func (c *caller) extendTo(ctx context.Context, name string, g []charge) error {
	id := c.call(history.Call{Verb: history.Extend, Idem: name, Life: idLife.Microseconds()}, g)
	e, err := c.n.ask.Once(name, idLife).Extend(ctx, plain(g)...)
	c.w.rec.Return(c.n.name, id, record.Answer{Decision: &e.Decision, Charged: e.Charged, Err: err})
	return err
}

// plus returns a cost and some tenths.
func plus(cost headgate.Cost, tenths int64) headgate.Cost {
	units := cost.Float64()
	if cost.IsZero() {
		units = 1
	}
	return headgate.MustCost(strconv.FormatFloat(units+float64(tenths)/10, 'f', 1, 64))
}

// settle settles what was taken under an id at other costs.
func (c *caller) settle(ctx context.Context, name string, first int, g []charge) {
	actual := make([]headgate.Charge, len(g))
	call := history.Call{Verb: history.Settle, Idem: name, Of: first}
	for i := range g {
		cost := headgate.Units(int64(c.w.s.rng.IntN(6)))
		call.Actual = append(call.Actual, cost.String())
		actual[i] = headgate.Charge{Limit: g[i].Limit, Key: g[i].Key, Cost: cost}
	}
	for range 1 + c.w.s.rng.IntN(2) {
		id := c.call(call, g)
		changed, err := c.n.ask.Once(name, 0).Settle(ctx, actual...)
		c.w.rec.Return(c.n.name, id, record.Answer{Corrected: changed, Err: err})
		if err == nil || !errors.Is(err, store.ErrUnknownOutcome) {
			return
		}
	}
}

// reserve reserves a start, and then keeps, settles or cancels it.
func (c *caller) reserve(ctx context.Context) {
	g := c.charges(1)
	if !g[0].of.versions[g[0].version-1].limit.Queues() {
		return
	}
	wait := c.w.s.between(0, time.Minute)
	id := c.call(history.Call{Verb: history.Reserve, Wait: wait.Microseconds()}, g)
	r, err := c.n.ask.Reserve(ctx, wait, plain(g)...)
	if err != nil {
		c.done(id, err)
		return
	}
	c.w.rec.Return(c.n.name, id, record.Answer{Decision: &r.Decision, StartAt: r.StartAt})
	if !r.Decision.Allowed {
		return
	}
	switch c.w.s.rng.IntN(5) {
	case 0:
		c.cancel(r, id, g)
	case 1:
		cost := headgate.Units(int64(c.w.s.rng.IntN(4)))
		again := c.call(history.Call{Verb: history.Settle, Of: id, Actual: []string{cost.String()}}, g)
		changed, err := r.Settle(ctx, cost)
		c.w.rec.Return(c.n.name, again, record.Answer{Corrected: changed, Err: err})
	}
}

// cancel cancels a reservation, again after an error: the first attempt has little time.
func (c *caller) cancel(r *headgate.Reservation, id int, g []charge) {
	c.w.s.sleep(c.w.s.between(1, 2*time.Second))
	for _, within := range []time.Duration{c.w.s.between(1, 20*time.Millisecond), 20 * time.Second} {
		ctx, cancel := sched.WithTimeout(context.Background(), within)
		again := c.call(history.Call{Verb: history.Cancel, Of: id}, g)
		back, err := r.Cancel(ctx)
		c.w.rec.Return(c.n.name, again, record.Answer{Corrected: back, Err: err})
		cancel()
		if err == nil {
			return
		}
	}
}

func (c *caller) wait() {
	g := c.charges(1)
	most := c.w.s.between(1, time.Minute)
	ctx, cancel := sched.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	id := c.call(history.Call{Verb: history.Take, Wait: most.Microseconds()}, g)
	begin := c.w.s.now()
	c.done(id, c.n.ask.WaitAtMost(ctx, most, plain(g)...))
	c.patience("WaitAtMost", begin, most)
}

func (c *caller) operate(ctx context.Context) {
	if !c.w.operates {
		return
	}
	g := c.charges(1)
	if c.w.held != nil && c.w.s.chance(200) {
		g = []charge{c.charge(c.w.held)}
	}
	if c.w.s.chance(500) {
		id := c.call(history.Call{Verb: history.Reset}, g)
		_, err := c.n.ask.Reset(ctx, g[0].Limit, g[0].Key)
		c.done(id, err)
		return
	}
	d := c.w.s.between(0, time.Minute).Truncate(time.Millisecond)
	verb := history.Block
	if c.w.s.chance(300) {
		d, verb = 0, history.Unblock
	}
	id := c.call(history.Call{Verb: verb, For: d.Microseconds()}, g)
	st, err := c.n.ask.Block(ctx, g[0].Limit, g[0].Key, d, "")
	c.w.rec.Return(c.n.name, id, record.Answer{At: st.At, Err: err})
}
