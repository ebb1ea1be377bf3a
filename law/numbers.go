package law

import (
	"fmt"
	"strconv"
	"strings"
)

// The places of Numbers.
const (
	nGranted = iota
	nKind
	nLevel
	nPrev
	nAt
	nUnit
	nEmptyAt
	nBlockedUntil
	nUsed
	nClock
	nRetryAt
	nEntry
	nStatus
	nStartAt
	nStep

	// Width is how many numbers stores that decide in their own language answer
	// for an op.
	Width = iota
)

// NumberNames are the names of Numbers, in order. Those from law to blocked_until, and
// step, are of the state.
var NumberNames = [Width]string{
	nGranted: "granted", nKind: "law", nLevel: "level", nPrev: "prev", nAt: "at", nUnit: "unit", nEmptyAt: "empty_at",
	nBlockedUntil: "blocked_until", nUsed: "used", nClock: "clock", nRetryAt: "retry_at", nEntry: "entry",
	nStatus: "status", nStartAt: "start_at", nStep: "step",
}

// What the status of Numbers may be.
const (
	done = iota
	stale
	replayed
	reused
	unknownID
	settled
)

// Numbers are an outcome as stores that decide in their own language pass it on,
// and remember it with an admission.
type Numbers [Width]int64

// Outcome returns the outcome that the numbers are.
func (n *Numbers) Outcome() Outcome {
	switch n[nStatus] {
	case reused:
		return Outcome{Err: ErrReused}
	case unknownID:
		return Outcome{Err: ErrUnknownID}
	case settled:
		return Outcome{Err: ErrSettled}
	}
	return Outcome{
		Granted: n[nGranted],
		State: State{
			Kind: Kind(n[nKind]), Level: n[nLevel], Prev: n[nPrev], At: n[nAt], Unit: n[nUnit], Step: n[nStep],
			EmptyAt: n[nEmptyAt], BlockedUntil: n[nBlockedUntil],
		},
		Used: n[nUsed], Clock: n[nClock], RetryAt: n[nRetryAt], EntryNumber: n[nEntry],
		Stale: n[nStatus] == stale, Replayed: n[nStatus] == replayed, StartAt: n[nStartAt],
	}
}

// Numbers returns the numbers of an outcome that admits.
func (out *Outcome) Numbers() Numbers {
	s := &out.State
	return Numbers{
		nGranted: out.Granted, nKind: int64(s.Kind), nLevel: s.Level, nPrev: s.Prev, nAt: s.At, nUnit: s.Unit,
		nStep:    s.Step,
		nEmptyAt: s.EmptyAt, nBlockedUntil: s.BlockedUntil,
		nUsed: out.Used, nClock: out.Clock, nRetryAt: out.RetryAt, nEntry: out.EntryNumber, nStatus: done,
		nStartAt: out.StartAt,
	}
}

// String returns the numbers with spaces between them.
func (n Numbers) String() string { return join(n[:]) }

// String returns the rule with spaces between its numbers.
func (r Terms) String() string { return join(r[:]) }

// ParseTerms parses what String returns.
func ParseTerms(s string) (r Terms, err error) {
	err = split(s, r[:])
	return r, err
}

func join(numbers []int64) string {
	b := make([]byte, 0, 128)
	for i, v := range numbers {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return string(b)
}

func split(s string, numbers []int64) (err error) {
	fields := strings.Fields(s)
	if len(fields) != len(numbers) {
		return fmt.Errorf("%d numbers, want %d: %q", len(fields), len(numbers), s)
	}
	for i, f := range fields {
		if numbers[i], err = strconv.ParseInt(f, 10, 64); err != nil {
			return err
		}
	}
	return nil
}

// Charged returns the numbers that stores remember of what was charged: those of the first
// charge, and after them the four of the extension, in the order of its fields, if there is
// one. They are separated by spaces.
func (a *Receipt) Charged() string {
	s := a.Outcome.Numbers().String()
	if e := &a.Extension; e.Cost != 0 {
		s += " " + join([]int64{e.Cost, e.Level, e.At, e.Returned})
	}
	return s
}

// SetCharged sets what Charged returns.
func (a *Receipt) SetCharged(s string) error {
	var all [Width + 4]int64
	some := all[:Width]
	if strings.Count(s, " ") >= Width {
		some = all[:]
	}
	if err := split(s, some); err != nil {
		return err
	}
	n, e := Numbers(some[:Width]), all[Width:]
	a.Outcome, a.Extension = n.Outcome(), Extension{Cost: e[0], Level: e[1], At: e[2], Returned: e[3]}
	return nil
}
