package law

import (
	"strings"
	"unicode/utf8"
)

// The greatest lengths of texts, in bytes.
const (
	MaxKey  = 512 // of a key
	MaxName = 255 // of a limit's name or canonical notation
	MaxID   = 255 // of an ID
)

// windowLevelEnd is above every level of the window law, so that its products stay within Max.
const windowLevelEnd = 1 << 32

// maxDuration is the longest time, in microseconds, that a full cell may take to drain, about 142 years, and also the
// longest block, history, deadline and life of an ID. It keeps every time of the laws within Max.
const maxDuration = 1 << 52

// Highest returns the highest level, in credits, that a cell of the limit can have. It is the Ceiling of a charge that
// is made whatever the level.
func (p *Params) Highest() int64 {
	if p.Kind == Window {
		return windowLevelEnd - 1
	}
	return Max
}

// ValidKey returns why key cannot be used, or nil: a key is at most 512 bytes of valid UTF-8 without NUL, and may be
// empty. Keys are compared byte by byte.
func ValidKey(key string) error { return ValidText("key", key, MaxKey) }

// Valid returns why c cannot be the cell of an op, or nil. Every store calls it before it makes a cell.
func (c Cell) Valid() error {
	if c.Limit == "" {
		return Invalid("limit", "has no name")
	}
	return c.ValidText()
}

// ValidText returns why no cell can have this limit and key, or nil: a limit's name is at most 255 bytes of valid UTF-8
// without NUL, a key at most 512. Either may be empty, as in the position of a page of a list.
func (c Cell) ValidText() error {
	if err := ValidText("limit", c.Limit, MaxName); err != nil {
		return err
	}
	return ValidText("key", c.Key, MaxKey)
}

// ValidText returns why s cannot be stored as the field, or nil: it is at most maxBytes of valid UTF-8 without NUL.
func ValidText(field, s string, maxBytes int) error {
	switch {
	case len(s) > maxBytes:
		return Invalid(field, "%d bytes long, at most %d are allowed", len(s), maxBytes)
	case strings.IndexByte(s, 0) >= 0:
		return Invalid(field, "contains a NUL byte")
	case !utf8.ValidString(s):
		return Invalid(field, "is not valid UTF-8")
	}
	return nil
}

// Valid returns what is wrong with the parameters, or nil.
func (p *Params) Valid() error {
	switch {
	case p.Kind < Bucket || p.Kind > Log:
		return Invalid("limit", "law %d does not exist", p.Kind)
	case p.Anchor > Calendar:
		return Invalid("limit", "anchor %d does not exist", p.Anchor)
	case !inRange(p.Unit) || !inRange(p.Capacity) || !inRange(p.Step):
		return Invalid("limit", "unit, capacity and step must be from 1 to 2^53-1")
	case p.Kind == Bucket && !inRange(p.Drain):
		return Invalid("limit", "drain must be from 1 to 2^53-1")
	case p.Kind == Window && p.Capacity >= windowLevelEnd:
		return Invalid("limit", "capacity of a sliding window must be below 2^32 credits")
	case p.DrainTime() > maxDuration:
		return Invalid("limit", "a full cell would take more than 142 years to drain")
	case min(p.Block, p.History, p.Deadline) < 0 || max(p.Block, p.History, p.Deadline) > maxDuration:
		return Invalid("limit", "block, history and deadline must be from 0 to 142 years")
	case p.Away > AwayAllow || p.Digits > maxDigits:
		return Invalid("limit", "policy %d for a store that is away, or %d digits, do not exist", p.Away, p.Digits)
	}
	return nil
}

// Valid returns what is wrong with the op, or nil. Every store applies only valid ops, so that all refuse the same.
func (op *Op) Valid() error { //nolint:gocyclo // a list of what may be wrong
	if op.Verb < Take || op.Verb > Extend {
		return Invalid("verb", "verb %d is not known here", op.Verb)
	}
	if err := op.Cell.Valid(); err != nil {
		return err
	}
	if err := op.Params.Valid(); err != nil {
		return err
	}
	if op.Params.Anchor == Calendar && op.Params.Kind == Bucket {
		if b := op.Window; b[0] < 0 || b[0] > b[1] || b[1] > b[2] || b[2] > b[3] || b[3] > Max {
			return Invalid("bounds", "window boundaries %v do not ascend", b)
		}
	}
	if op.Now < 0 || op.Now > maxDuration {
		return Invalid("time", "time %d is out of range", op.Now)
	}
	if op.From < 0 || op.From > Max || op.Until < 0 || op.Until > Max {
		return Invalid("time", "what holds from %d until %d is out of range", op.From, op.Until)
	}
	switch op.Verb {
	case Take, Check, Extend:
		return op.validCharge()
	case Return:
		return op.validReturn()
	case Settle:
		if op.Cost < 0 && op.Cost != Cancelled || op.Cost > Max || op.Count != 1 {
			return Invalid("cost", "%d times %d credits is out of range", op.Count, op.Cost)
		}
		return op.validID()
	case Block:
		if op.TTL < 0 || op.TTL > maxDuration {
			return Invalid("block", "must last from 0 to 142 years")
		}
		return ValidText("reason", op.Reason, MaxKey)
	case Renew:
		if op.Params.Kind != Log || op.EntryNumber < 1 {
			return Invalid("number", "what is renewed was never acquired")
		}
	}
	return nil
}

// validCharge returns what is wrong with an op of verb Take, Check or Extend, or nil.
func (op *Op) validCharge() error {
	p := &op.Params
	if !inRange(op.Cost) || !inRange(op.Count) || op.Count > Max/op.Cost {
		return Invalid("cost", "%d times %d credits is out of range", op.Count, op.Cost)
	}
	if op.Ceiling < 0 || op.Ceiling > Max || p.Kind == Window && op.Ceiling >= windowLevelEnd {
		return Invalid("ceiling", "ceiling %d is out of range", op.Ceiling)
	}
	if op.Deferred && (op.Verb != Take || p.Kind != Bucket || p.Anchor != Own || op.Partial) {
		return Invalid("charges", "this charge cannot start later than at its decision")
	}
	switch {
	case op.Verb == Extend:
		if op.Count != 1 || op.Partial || op.Deferred {
			return Invalid("charges", "a charge is extended at once, and by all of a cost")
		}
	case op.ID == "":
		return nil
	case op.Verb == Check || op.Partial:
		return Invalid("id", "only a request that takes all or nothing has one")
	}
	return op.validLife()
}

// validLife returns what is wrong with an ID that the store has to remember, or with its TTL, or nil.
func (op *Op) validLife() error {
	if op.TTL < 1 || op.TTL > maxDuration {
		return Invalid("id", "must be remembered for 1 us to 142 years")
	}
	return op.validID()
}

// validID returns what is wrong with the ID of an op, or nil.
func (op *Op) validID() error {
	if op.ID == "" {
		return Invalid("id", "is missing")
	}
	return ValidText("id", op.ID, MaxID)
}

// validReturn returns what is wrong with an op of verb Return, or nil.
func (op *Op) validReturn() error {
	credits := max(op.Cost, -op.Cost)
	if !inRange(credits) || !inRange(op.Count) || op.Count > Max/credits {
		return Invalid("cost", "%d times %d credits is out of range", op.Count, op.Cost)
	}
	if op.Level < 0 || op.Level > Max || op.At < 0 || op.At > Max || op.Returned < 0 || op.Returned > Max ||
		op.EntryNumber < 0 {
		return Invalid("charges", "what is given back was never charged")
	}
	return nil
}

// ValidGroup returns what is wrong with the ops of one request, or nil.
func ValidGroup(ops []Op) error {
	for i := range ops {
		if err := ops[i].Valid(); err != nil {
			return err
		}
		if ops[i].Verb != ops[0].Verb {
			return Invalid("charges", "a request has one verb for all its charges")
		}
		if ops[i].Partial && len(ops) > 1 {
			return Invalid("charges", "a charge granted in part cannot be one of several")
		}
		if ops[i].Deferred != ops[0].Deferred {
			return Invalid("charges", "either all charges of a request can start later, or none")
		}
		if (ops[i].Verb == Take || ops[i].Verb == Extend) && ops[i].ID != ops[0].ID {
			return Invalid("id", "a request has one for all its charges")
		}
		if err := validAlternative(ops, i); err != nil {
			return err
		}
	}
	if err := validParams(ops); err != nil {
		return err
	}
	return validCells(ops)
}

// validAlternative returns what is wrong with the Alternative of op i of a request, or nil.
func validAlternative(ops []Op, i int) error {
	op, before := &ops[i], uint8(0)
	if i > 0 {
		before = ops[i-1].Alternative
	}
	switch n := op.Alternative; {
	case i > 0 && n != before && (before == 0 || n != before+1), i == 0 && n > 1:
		return Invalid("alternative", "is %d after %d; alternatives are numbered from 1, one after another", n, before)
	case n > 0 && (op.Verb != Take && op.Verb != Check || op.Partial || op.Deferred):
		return Invalid("alternative", "stands only in a request that takes or checks all of its costs at once")
	}
	return nil
}

// validCells returns an error if a request with an ID, or an alternative of it, charges a cell twice: the cell has one
// receipt for an ID.
func validCells(ops []Op) error {
	if len(ops) < 2 || ops[0].ID == "" {
		return nil
	}
	seen := make(map[Cell]bool, len(ops))
	for i := range ops {
		if i > 0 && ops[i].Alternative != ops[i-1].Alternative {
			clear(seen)
		}
		if c := ops[i].Cell; seen[c] {
			return Invalid("id", "a request that has one charges each key of a limit once, this one charges %q of "+
				"%q twice", c.Key, c.Limit)
		}
		seen[ops[i].Cell] = true
	}
	return nil
}

// validParams returns an error if ops on one cell have different parameters, but for Block: a charge that leaves
// headroom has none, and may stand beside one that does not. A limit may have different parameters for different keys.
// Requests may have thousands of charges, mostly of a few limits: so it first compares limits alone.
func validParams(ops []Op) error {
	if len(ops) < 2 {
		return nil
	}
	firstOfLimit := make(map[string]int, 4) // index of the first op of each limit
	sameParams := true
	for i := range ops {
		j, seen := firstOfLimit[ops[i].Cell.Limit]
		if !seen {
			firstOfLimit[ops[i].Cell.Limit] = i
		} else if !sameButBlock(&ops[j].Params, &ops[i].Params) {
			sameParams = false
			break
		}
	}
	if sameParams {
		return nil
	}
	firstOfCell := make(map[Cell]int, len(ops))
	for i := range ops {
		j, seen := firstOfCell[ops[i].Cell]
		if !seen {
			firstOfCell[ops[i].Cell] = i
		} else if !sameButBlock(&ops[j].Params, &ops[i].Params) {
			return Invalid("limit", "limit %q stands in one request with two meanings for one key", ops[i].Cell.Limit)
		}
	}
	return nil
}

// sameButBlock reports whether parameters differ in Block at most.
func sameButBlock(a, b *Params) bool {
	if *a == *b {
		return true
	}
	c := *a
	c.Block = b.Block
	return c == *b
}

func inRange(v int64) bool { return v >= 1 && v <= Max }
