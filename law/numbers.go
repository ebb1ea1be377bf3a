package law

import (
	"fmt"
	"strconv"
	"strings"
)

// The indexes of Numbers.
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

	// Width is how many numbers describe the outcome of an op.
	Width = iota
)

// NumberNames are the names of Numbers, in order. The numbers from law to blocked_until, and step, belong to the state.
var NumberNames = [Width]string{
	nGranted: "granted", nKind: "law", nLevel: "level", nPrev: "prev", nAt: "at", nUnit: "unit", nEmptyAt: "empty_at",
	nBlockedUntil: "blocked_until", nUsed: "used", nClock: "clock", nRetryAt: "retry_at", nEntry: "entry",
	nStatus: "status", nStartAt: "start_at", nStep: "step",
}

// The values of the number nStatus.
const (
	statusDone = iota
	statusStale
	statusReplayed
	statusReused
	statusUnknownID
	statusSettled
)

// Numbers are an outcome in the form in which stores that decide in SQL or Lua return it, and keep it in a receipt.
type Numbers [Width]int64

// Outcome converts the numbers into an outcome.
func (n *Numbers) Outcome() Outcome {
	switch n[nStatus] {
	case statusReused:
		return Outcome{Err: ErrReused}
	case statusUnknownID:
		return Outcome{Err: ErrUnknownID}
	case statusSettled:
		return Outcome{Err: ErrSettled}
	}
	return Outcome{
		Granted: n[nGranted],
		State: State{
			Kind: Kind(n[nKind]), Level: n[nLevel], Prev: n[nPrev], At: n[nAt], Unit: n[nUnit], Step: n[nStep],
			EmptyAt: n[nEmptyAt], BlockedUntil: n[nBlockedUntil],
		},
		Used: n[nUsed], Clock: n[nClock], RetryAt: n[nRetryAt], EntryNumber: n[nEntry],
		Stale: n[nStatus] == statusStale, Replayed: n[nStatus] == statusReplayed, StartAt: n[nStartAt],
	}
}

// Numbers converts an outcome that admits into numbers.
func (out *Outcome) Numbers() Numbers {
	s := &out.State
	return Numbers{
		nGranted: out.Granted, nKind: int64(s.Kind), nLevel: s.Level, nPrev: s.Prev, nAt: s.At, nUnit: s.Unit,
		nStep: s.Step, nEmptyAt: s.EmptyAt, nBlockedUntil: s.BlockedUntil, nUsed: out.Used, nClock: out.Clock,
		nRetryAt: out.RetryAt, nEntry: out.EntryNumber, nStatus: statusDone, nStartAt: out.StartAt,
	}
}

// String returns the numbers with spaces between them.
func (n Numbers) String() string { return formatNumbers(n[:]) }

// String returns the terms with spaces between their numbers.
func (r Terms) String() string { return formatNumbers(r[:]) }

// ParseTerms parses the text that Terms.String returns.
func ParseTerms(s string) (r Terms, err error) {
	err = parseNumbers(s, r[:])
	return r, err
}

func formatNumbers(numbers []int64) string {
	b := make([]byte, 0, 128)
	for i, v := range numbers {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return string(b)
}

// parseNumbers fills numbers from s, which must have exactly as many.
func parseNumbers(s string, numbers []int64) (err error) {
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

// Charged returns the text in which stores keep the charge of a receipt: the numbers of the first outcome and, if there
// is an extension, its four fields in order, all separated by spaces.
func (a *Receipt) Charged() string {
	s := a.Outcome.Numbers().String()
	if e := &a.Extension; e.Cost != 0 {
		s += " " + formatNumbers([]int64{e.Cost, e.Level, e.At, e.Returned})
	}
	return s
}

// SetCharged sets Outcome and Extension from the text that Charged returns.
func (a *Receipt) SetCharged(s string) error {
	var buffer [Width + 4]int64
	numbers := buffer[:Width]
	if strings.Count(s, " ") >= Width {
		numbers = buffer[:]
	}
	if err := parseNumbers(s, numbers); err != nil {
		return err
	}
	n, e := Numbers(numbers[:Width]), buffer[Width:]
	a.Outcome, a.Extension = n.Outcome(), Extension{Cost: e[0], Level: e[1], At: e[2], Returned: e[3]}
	return nil
}
