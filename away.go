package headgate

import "github.com/headgate/headgate/law"

// Away says what a limit answers while its store cannot decide: while it cannot be reached, takes no
// writes, or does not answer within the deadline. Package internal/front/guard, which store/front contains,
// carries it out. Such a decision has Via == [ViaFallback]. What stands in the store is not changed.
//
// It is for requests that take and check. Everything else fails with the store's error, and so
// do requests with an id, reservations and leases, which the store would have to know later. Where the
// limits of one request differ, the strictest holds: AwayDeny before AwayShare before AwayAllow.
type Away = law.Away

// What a limit answers while its store cannot decide. In notation, "away share" and "away allow".
const (
	// AwayDeny is the zero Away: the store's error, and nothing is admitted.
	AwayDeny = law.AwayDeny
	// AwayShare divides the limit by the processes that use the store, and each decides by
	// its part in memory. The parts of all processes are never more than the limit, also when some of them
	// reach the store and others do not: see [Bound].
	AwayShare = law.AwayShare
	// AwayAllow admits everything. The limit has no bound then.
	AwayAllow = law.AwayAllow
)
