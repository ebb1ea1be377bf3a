package law

import (
	"strings"
	"unicode/utf8"
)

// MaxKey is the length in bytes that a key may have, MaxName that of a
// limit's name or canonical notation.
const (
	MaxKey  = 512
	MaxName = 255
)

// maxWindow is what the levels of the window law stay below, so that its
// products stay within Max.
const maxWindow = 1 << 32

// maxDrain is the longest time, in microseconds, that a full cell may take to
// drain: about 142 years. It keeps every time of the laws within Max.
const maxDrain = 1 << 52

// Highest returns the highest level, in credits, that a cell of the limit can have: what is charged
// whatever the level has it as its Ceiling.
func (p *Params) Highest() int64 {
	if p.Kind == Window {
		return maxWindow - 1
	}
	return Max
}

// ValidKey returns why key cannot be used, or nil: a key is at most 512 bytes of
// valid UTF-8 without NUL. The empty key is a key. Keys are compared byte by byte.
func ValidKey(key string) error { return ValidText("key", key, MaxKey) }

// Valid returns why c cannot be the cell of an op, or nil. Every store calls it
// before it looks for the cell.
func (c Cell) Valid() error {
	if c.Limit == "" {
		return Invalid("limit", "has no name")
	}
	return c.ValidText()
}

// ValidText returns why no cell can have this limit and key, or nil: a limit's name is
// at most 255 bytes of valid UTF-8 without NUL, a key at most 512. Either may be
// empty, as in what pages through a list.
func (c Cell) ValidText() error {
	if err := ValidText("limit", c.Limit, MaxName); err != nil {
		return err
	}
	return ValidText("key", c.Key, MaxKey)
}

// ValidText returns why s cannot be kept as what it is called, or nil: at most most bytes of
// valid UTF-8 without NUL.
func ValidText(what, s string, most int) error {
	switch {
	case len(s) > most:
		return Invalid(what, "%d bytes long, at most %d are allowed", len(s), most)
	case strings.IndexByte(s, 0) >= 0:
		return Invalid(what, "contains a NUL byte")
	case !utf8.ValidString(s):
		return Invalid(what, "is not valid UTF-8")
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
	case !within(p.Unit) || !within(p.Capacity) || !within(p.Step):
		return Invalid("limit", "unit, capacity and step must be from 1 to 2^53-1")
	case p.Kind == Bucket && !within(p.Drain):
		return Invalid("limit", "drain must be from 1 to 2^53-1")
	case p.Kind == Window && p.Capacity >= maxWindow:
		return Invalid("limit", "capacity of a sliding window must be below 2^32 credits")
	case p.DrainTime() > maxDrain:
		return Invalid("limit", "a full cell would take more than 142 years to drain")
	case min(p.Block, p.History, p.Deadline) < 0 || max(p.Block, p.History, p.Deadline) > maxDrain:
		return Invalid("limit", "block, history and deadline must be from 0 to 142 years")
	case p.Away > AwayAllow || p.Digits > maxDigits:
		return Invalid("limit", "policy %d for a store that is away, or %d digits, do not exist", p.Away, p.Digits)
	}
	return nil
}

// Valid returns what is wrong with the op, or nil. Every store calls it before
// it does anything, so that all refuse alike.
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
	if op.Now < 0 || op.Now > maxDrain {
		return Invalid("time", "time %d is out of range", op.Now)
	}
	if op.From < 0 || op.From > Max || op.Until < 0 || op.Until > Max {
		return Invalid("time", "what holds from %d until %d is out of range", op.From, op.Until)
	}
	switch op.Verb {
	case Take, Check, Extend:
		return op.validAsked()
	case Return:
		return op.validReturn()
	case Settle:
		if op.Cost < 0 && op.Cost != Cancelled || op.Cost > Max || op.Count != 1 {
			return Invalid("cost", "%d times %d credits is out of range", op.Count, op.Cost)
		}
		return op.validID()
	case Block:
		if op.TTL < 0 || op.TTL > maxDrain {
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

func (op *Op) validAsked() error {
	p := &op.Params
	if !within(op.Cost) || !within(op.Count) || op.Count > Max/op.Cost {
		return Invalid("cost", "%d times %d credits is out of range", op.Count, op.Cost)
	}
	if op.Ceiling < 0 || op.Ceiling > Max || p.Kind == Window && op.Ceiling >= maxWindow {
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

// validLife returns what is wrong with an ID that is to be remembered, or nil.
func (op *Op) validLife() error {
	if op.TTL < 1 || op.TTL > maxDrain {
		return Invalid("id", "must be remembered for 1 us to 142 years")
	}
	return op.validID()
}

func (op *Op) validID() error {
	if op.ID == "" {
		return Invalid("id", "is missing")
	}
	return ValidText("id", op.ID, MaxID)
}

func (op *Op) validReturn() error {
	credits := max(op.Cost, -op.Cost)
	if !within(credits) || !within(op.Count) || op.Count > Max/credits {
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
	}
	if err := oneMeaning(ops); err != nil {
		return err
	}
	return oneCharge(ops)
}

// oneCharge returns which cell a request with an ID charges twice, or nil: the ID
// stands for one charge of it.
func oneCharge(ops []Op) error {
	if len(ops) < 2 || ops[0].ID == "" {
		return nil
	}
	seen := make(map[Cell]bool, len(ops))
	for i := range ops {
		if c := ops[i].Cell; seen[c] {
			return Invalid("id", "a request that has one charges each key of a limit once, this one charges %q of "+
				"%q twice", c.Key, c.Limit)
		}
		seen[ops[i].Cell] = true
	}
	return nil
}

// oneMeaning returns which limit stands in a request with different parameters for one key,
// or nil: keys may have limits of their own. Requests may have thousands of charges, of
// mostly a few limits.
func oneMeaning(ops []Op) error {
	if len(ops) < 2 {
		return nil
	}
	alike := make(map[string]int, 4) // the first op of each limit
	same := true
	for i := range ops {
		j, seen := alike[ops[i].Cell.Limit]
		if !seen {
			alike[ops[i].Cell.Limit] = i
		} else if ops[j].Params != ops[i].Params {
			same = false
			break
		}
	}
	if same {
		return nil
	}
	first := make(map[Cell]int, len(ops))
	for i := range ops {
		j, seen := first[ops[i].Cell]
		if !seen {
			first[ops[i].Cell] = i
		} else if ops[j].Params != ops[i].Params {
			return Invalid("limit", "limit %q stands in one request with two meanings for one key", ops[i].Cell.Limit)
		}
	}
	return nil
}

func within(v int64) bool { return v >= 1 && v <= Max }

// MaxID is the length in bytes that an ID may have.
const MaxID = 255
