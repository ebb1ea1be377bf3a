package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// charge is a charge of a caller, with the version of the limit that the caller knows.
type charge struct {
	headgate.Charge
	limit   *limit
	version int
}

func headgateCharges(charges []charge) []headgate.Charge {
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

// actions are the actions of callers. The percentages sum up to 100.
var actions = []struct {
	percent int
	run     func(*caller, context.Context)
}{
	{36, func(c *caller, ctx context.Context) { c.take(ctx, c.randomCharges(1)) }},
	{4, (*caller).takeFirst},
	{10, (*caller).allow},
	{12, func(c *caller, ctx context.Context) { c.take(ctx, c.randomCharges(2+c.w.s.rng.IntN(2))) }},
	{4, (*caller).check},
	{10, (*caller).takeOnce},
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
	for _, a := range actions {
		if n < a.percent {
			a.run(c, ctx)
			return
		}
		n -= a.percent
	}
}

// context returns a context for a call, which sometimes ends before the call does.
func (c *caller) context() (context.Context, context.CancelFunc) {
	d := 20 * time.Second
	if c.w.s.chance(c.w.cancels) {
		d = c.w.s.between(1, 30*time.Millisecond)
	}
	return sched.WithTimeout(context.Background(), d)
}

func (c *caller) randomCharges(n int) []charge {
	var list []charge
	for range n {
		l := c.w.rateLimits[c.w.s.rng.IntN(len(c.w.rateLimits))]
		list = append(list, c.randomCharge(l))
	}
	return list
}

func (c *caller) randomCharge(l *limit) charge {
	charge := l.charge(c.n.p, c.w.keys[c.w.s.rng.IntN(len(c.w.keys))])
	switch c.w.s.rng.IntN(6) {
	case 0:
		charge.Cost = headgate.Units(int64(1 + c.w.s.rng.IntN(5)))
	case 1:
		charge.Cost = headgate.MustCost(strconv.Itoa(c.w.s.rng.IntN(3)) + "." + strconv.Itoa(1+c.w.s.rng.IntN(9)))
	}
	if c.w.s.rng.IntN(8) == 0 {
		charge.Keep = headgate.Percent(int64(5 + c.w.s.rng.IntN(60)))
	}
	return charge
}

// recordCall records that the caller makes a call, and returns the number of the call.
func (c *caller) recordCall(call history.Call, charges []charge) int {
	for i := range charges {
		definition := &charges[i].limit.versions[charges[i].version-1].definition
		call.Charges = append(call.Charges, record.Charge(definition, charges[i].Charge))
	}
	if c.w.net != nil {
		call.Front = "server"
	}
	return c.w.rec.Call(c.n.name, call)
}

// recordErr records the return of a call that has no decision.
func (c *caller) recordErr(id int, err error) { c.w.rec.Return(c.n.name, id, record.Answer{Err: err}) }

func (c *caller) take(ctx context.Context, charges []charge) {
	for {
		id := c.recordCall(history.Call{Verb: history.Take}, charges)
		d, err := c.n.limiter.Take(ctx, headgateCharges(charges)...)
		c.w.rec.Decision(c.n.name, id, d, err)
		// Callers that retry soon after a refusal test package deny.
		if err != nil || d.Allowed || !c.w.s.chance(500) {
			return
		}
		c.w.s.sleep(c.w.s.between(1, 20*time.Millisecond))
	}
}

// errNotTried says in a history that nothing was charged to an alternative.
var errNotTried = fmt.Errorf("%w: not tried, or only checked", store.ErrUnavailable)

// takeFirst takes the first of two charges that passes. The history has it as a check of the first charge, a take of it
// and a take of the second one. Nothing is known of two of these three, or of one if both charges are refused.
func (c *caller) takeFirst(ctx context.Context) {
	charges := c.randomCharges(2)
	check := c.recordCall(history.Call{Verb: history.Check}, charges[:1])
	first := c.recordCall(history.Call{Verb: history.Take}, charges[:1])
	second := c.recordCall(history.Call{Verb: history.Take}, charges[1:])
	d, err := c.n.limiter.Take(ctx, headgate.FirstOf(headgateCharges(charges[:1]), headgateCharges(charges[1:]))...)
	of := func(i int) headgate.Decision {
		f := &d.Each[i]
		return headgate.Decision{
			Allowed: f.Allowed, LimitName: f.LimitName, Key: f.Key, Capacity: f.Capacity, Remaining: f.Remaining,
			RetryAfter: f.RetryAfter, ResetAfter: f.ResetAfter, Applied: f.Applied, At: d.At, Via: d.Via,
		}
	}
	switch {
	case err != nil:
		for _, id := range []int{check, first, second} {
			c.recordErr(id, err)
		}
	case d.Alternative == 1 && d.Allowed:
		c.w.rec.Decision(c.n.name, first, of(0), nil)
		c.recordErr(check, errNotTried)
		c.recordErr(second, errNotTried)
	default:
		c.w.rec.Decision(c.n.name, check, of(0), nil)
		c.recordErr(first, errNotTried)
		c.w.rec.Decision(c.n.name, second, of(1), nil)
	}
}

func (c *caller) allow(ctx context.Context) {
	charges := c.randomCharges(1)
	charges[0].Cost, charges[0].Keep = headgate.Cost{}, headgate.Headroom{}
	for range 1 + c.w.s.rng.IntN(4) {
		id := c.recordCall(history.Call{Verb: history.Take}, charges)
		d, err := c.n.limiter.Allow(ctx, charges[0].Limit, charges[0].Key)
		c.w.rec.Decision(c.n.name, id, d, err)
	}
}

func (c *caller) check(ctx context.Context) {
	charges := c.randomCharges(1 + c.w.s.rng.IntN(2))
	id := c.recordCall(history.Call{Verb: history.Check}, charges)
	d, err := c.n.limiter.Check(ctx, headgateCharges(charges)...)
	c.w.rec.Decision(c.n.name, id, d, err)
}

// takeOnce takes with an id, up to three times, and sometimes extends, settles or cancels the charges.
func (c *caller) takeOnce(ctx context.Context) {
	charges := c.randomCharges(1 + c.w.s.rng.IntN(2))
	if charges[0].limit == charges[len(charges)-1].limit { // the id of a request has one charge of each cell
		charges = charges[:1]
	}
	c.w.lastID++
	requestID := "id-" + strconv.Itoa(c.w.lastID)
	firstCall := 0
	var err error
	for range 1 + c.w.s.rng.IntN(3) {
		var d headgate.Decision
		id := c.recordCall(history.Call{Verb: history.Take, Idem: requestID, Life: idLife.Microseconds()}, charges)
		firstCall = cmp.Or(firstCall, id)
		d, err = c.n.limiter.Once(requestID, idLife).Take(ctx, headgateCharges(charges)...)
		c.w.rec.Decision(c.n.name, id, d, err)
		if err == nil && !d.Allowed {
			return
		}
		c.w.s.sleep(c.w.s.between(1, time.Second))
	}
	if err != nil {
		return
	}
	extended := c.extend(ctx, requestID, charges)
	switch c.w.s.rng.IntN(3) {
	case 0:
		c.settle(ctx, requestID, firstCall, charges)
	case 1:
		id := c.recordCall(history.Call{Verb: history.Cancel, Idem: requestID, Of: firstCall}, charges)
		corrections, err := c.n.limiter.Once(requestID, 0).Cancel(ctx, headgateCharges(charges)...)
		c.w.rec.Return(c.n.name, id, record.Answer{Corrected: corrections, Err: err})
	}
	if c.w.s.chance(300) { // an extension that comes late
		_ = c.extendTo(ctx, requestID, extended)
	}
	if c.w.s.chance(300) { // a duplicate that comes late, or another attempt
		id := c.recordCall(history.Call{Verb: history.Take, Idem: requestID, Life: idLife.Microseconds()}, charges)
		d, err := c.n.limiter.Once(requestID, idLife).Take(ctx, headgateCharges(charges)...)
		c.w.rec.Decision(c.n.name, id, d, err)
	}
}

// extend extends the charges under an id, up to twice. It sometimes repeats an extension, and mostly does so after an
// unknown outcome. It returns the charges of the last extension.
func (c *caller) extend(ctx context.Context, requestID string, charges []charge) []charge {
	extended := slices.Clone(charges)
	if len(extended) > 1 && c.w.s.chance(300) {
		i := c.w.s.rng.IntN(len(extended))
		extended = extended[i : i+1]
	}
	for range c.w.s.rng.IntN(3) {
		for i := range extended {
			if len(extended) == 1 || c.w.s.chance(800) { // if there are several, one may stay as it is
				extended[i].Cost = addTenths(extended[i].Cost, int64(1+c.w.s.rng.IntN(30)))
			}
		}
		err := c.extendTo(ctx, requestID, extended)
		for err == nil && c.w.s.chance(200) || errors.Is(err, store.ErrUnknownOutcome) && c.w.s.chance(800) {
			c.w.s.sleep(c.w.s.between(1, time.Second))
			err = c.extendTo(ctx, requestID, extended)
		}
		c.w.s.sleep(c.w.s.between(1, 5*time.Second))
	}
	return extended
}

// extendTo makes one attempt to extend the charges under an id.
func (c *caller) extendTo(ctx context.Context, requestID string, charges []charge) error {
	id := c.recordCall(history.Call{Verb: history.Extend, Idem: requestID, Life: idLife.Microseconds()}, charges)
	e, err := c.n.limiter.Once(requestID, idLife).Extend(ctx, headgateCharges(charges)...)
	c.w.rec.Return(c.n.name, id, record.Answer{Decision: &e.Decision, Charged: e.Charged, Err: err})
	return err
}

// addTenths returns the sum of a cost and some tenths of a unit.
func addTenths(cost headgate.Cost, tenths int64) headgate.Cost {
	units := cost.Float64()
	if cost.IsZero() {
		units = 1
	}
	return headgate.MustCost(strconv.FormatFloat(units+float64(tenths)/10, 'f', 1, 64))
}

// settle settles the charges under an id at other costs.
func (c *caller) settle(ctx context.Context, requestID string, firstCall int, charges []charge) {
	actual := make([]headgate.Charge, len(charges))
	call := history.Call{Verb: history.Settle, Idem: requestID, Of: firstCall}
	for i := range charges {
		cost := headgate.Units(int64(c.w.s.rng.IntN(6)))
		call.Actual = append(call.Actual, cost.String())
		actual[i] = headgate.Charge{Limit: charges[i].Limit, Key: charges[i].Key, Cost: cost}
	}
	for range 1 + c.w.s.rng.IntN(2) {
		id := c.recordCall(call, charges)
		corrections, err := c.n.limiter.Once(requestID, 0).Settle(ctx, actual...)
		c.w.rec.Return(c.n.name, id, record.Answer{Corrected: corrections, Err: err})
		if err == nil || !errors.Is(err, store.ErrUnknownOutcome) {
			return
		}
	}
}

// reserve reserves a start, and then keeps, settles or cancels it.
func (c *caller) reserve(ctx context.Context) {
	charges := c.randomCharges(1)
	if !charges[0].limit.versions[charges[0].version-1].limit.Queues() {
		return
	}
	wait := c.w.s.between(0, time.Minute)
	id := c.recordCall(history.Call{Verb: history.Reserve, Wait: wait.Microseconds()}, charges)
	r, err := c.n.limiter.Reserve(ctx, wait, headgateCharges(charges)...)
	if err != nil {
		c.recordErr(id, err)
		return
	}
	c.w.rec.Return(c.n.name, id, record.Answer{Decision: &r.Decision, StartAt: r.StartAt})
	if !r.Decision.Allowed {
		return
	}
	switch c.w.s.rng.IntN(5) {
	case 0:
		c.cancel(r, id, charges)
	case 1:
		cost := headgate.Units(int64(c.w.s.rng.IntN(4)))
		correctionID := c.recordCall(history.Call{
			Verb: history.Settle, Of: id, Actual: []string{cost.String()},
		}, charges)
		corrections, err := r.Settle(ctx, cost)
		c.w.rec.Return(c.n.name, correctionID, record.Answer{Corrected: corrections, Err: err})
	}
}

// cancel cancels a reservation, and repeats that after an error: the first attempt has little time.
func (c *caller) cancel(r *headgate.Reservation, id int, charges []charge) {
	c.w.s.sleep(c.w.s.between(1, 2*time.Second))
	for _, timeout := range []time.Duration{c.w.s.between(1, 20*time.Millisecond), 20 * time.Second} {
		ctx, cancel := sched.WithTimeout(context.Background(), timeout)
		correctionID := c.recordCall(history.Call{Verb: history.Cancel, Of: id}, charges)
		corrections, err := r.Cancel(ctx)
		c.w.rec.Return(c.n.name, correctionID, record.Answer{Corrected: corrections, Err: err})
		cancel()
		if err == nil {
			return
		}
	}
}

func (c *caller) wait() {
	charges := c.randomCharges(1)
	maxWait := c.w.s.between(1, time.Minute)
	ctx, cancel := sched.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	id := c.recordCall(history.Call{Verb: history.Take, Wait: maxWait.Microseconds()}, charges)
	begin := c.w.s.now()
	c.recordErr(id, c.n.limiter.WaitAtMost(ctx, maxWait, headgateCharges(charges)...))
	c.checkWait("WaitAtMost", begin, maxWait)
}

func (c *caller) operate(ctx context.Context) {
	if !c.w.operates {
		return
	}
	charges := c.randomCharges(1)
	if c.w.leaseLimit != nil && c.w.s.chance(200) {
		charges = []charge{c.randomCharge(c.w.leaseLimit)}
	}
	if c.w.s.chance(500) {
		id := c.recordCall(history.Call{Verb: history.Reset}, charges)
		_, err := c.n.limiter.Reset(ctx, charges[0].Limit, charges[0].Key)
		c.recordErr(id, err)
		return
	}
	d := c.w.s.between(0, time.Minute).Truncate(time.Millisecond)
	verb := history.Block
	if c.w.s.chance(300) {
		d, verb = 0, history.Unblock
	}
	id := c.recordCall(history.Call{Verb: verb, For: d.Microseconds()}, charges)
	st, err := c.n.limiter.Block(ctx, charges[0].Limit, charges[0].Key, d, "")
	c.w.rec.Return(c.n.name, id, record.Answer{At: st.At, Err: err})
}
