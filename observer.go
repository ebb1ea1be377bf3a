package headgate

import (
	"context"
	"time"
)

// Observer receives every decision of a Limiter, for metrics and logs. Its method is called
// by many goroutines at once, after the decision, and holds up the caller until it returns.
// store.Observer hears what happens beside the decisions.
type Observer interface {
	// Decided is called after each decision, and after each attempt that failed.
	Decided(ctx context.Context, e Event)
}

// Event is a decision, or an attempt at one.
type Event struct {
	Verb     Verb
	Limit    string   // name of the limit of the first charge, also with an error; empty: there is no charge
	Decision Decision // about refused charges too; zero with an error
	Err      error
	Took     time.Duration

	// Charges are those of the request. Of limits that were given by name they have the name alone. Their
	// memory is used again when Decided has returned.
	Charges []Charge
	// Accepted is how much of its charge a fill-up has taken; zero for all other verbs.
	Accepted Cost
}

// Verb is a method of a Limiter, as observers see it.
type Verb string

// The verbs. A Wait or Await is observed as the attempts that it makes.
const (
	VerbTake    Verb = "take"
	VerbCheck   Verb = "check"
	VerbFillUp  Verb = "fill-up"
	VerbDebit   Verb = "debit"
	VerbReserve Verb = "reserve"
	VerbExtend  Verb = "extend"
	VerbAcquire Verb = "acquire"
)
