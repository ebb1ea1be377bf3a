package headgate

import (
	"context"
	"sync"
	"time"
)

// Observer receives every decision of a Limiter, for metrics and logs. Its method is called by many goroutines at once,
// after the decision, and holds up the caller until it returns. For events other than decisions, see store.Observer.
type Observer interface {
	// Decided is called after each decision, and after each attempt that failed.
	Decided(ctx context.Context, e Event)
}

// Event is a decision, or an attempt at one.
type Event struct {
	Verb     Verb
	Limit    string   // name of the limit of the first charge, also with an error; empty: there is no charge
	Decision Decision // an admission or a refusal; zero with an error
	Err      error
	Took     time.Duration

	// Charges are the charges of the request, as the caller gave them: a limit given by name has only its name. The
	// slice is reused after Decided has returned.
	Charges []Charge
	// Accepted is the cost that a fill-up has taken; zero for all other verbs.
	Accepted Cost
}

// Verb is a method of a Limiter, as observers see it.
type Verb string

// The verbs. For a Wait or an Await, observers see its attempts, and the check of a Wait in a queue.
const (
	VerbTake    Verb = "take"
	VerbCheck   Verb = "check"
	VerbFillUp  Verb = "fill-up"
	VerbDebit   Verb = "debit"
	VerbReserve Verb = "reserve"
	VerbExtend  Verb = "extend"
	VerbAcquire Verb = "acquire"
)

// report passes a decision about charges to the observer, which is not nil. It copies the charges, so that they can
// stay on the stack when there is no observer: an argument of an interface's method lives on the heap.
func (l *Limiter) report(ctx context.Context, e *Event, charges []Charge) {
	list := chargeLists.Get().(*[]Charge)
	*list = append((*list)[:0], charges...)
	e.Charges = *list
	if len(charges) > 0 {
		e.Limit = charges[0].Limit.Name()
	}
	l.observer.Decided(ctx, *e)
	clear(*list)
	chargeLists.Put(list)
}

// chargeLists pools the copies of charges that observers get.
var chargeLists = sync.Pool{New: func() any { return new([]Charge) }}
