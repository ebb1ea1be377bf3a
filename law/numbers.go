package law

import (
	"fmt"
	"strconv"
	"strings"
)

// Width is how many numbers stores that decide in their own language answer
// for an op.
const Width = 15

// The answers of Numbers[12].
const (
	done = iota
	stale
	replayed
	reused
	unknownID
	settled
	full // Numbers[11] is Outcome.Full, Numbers[9] the clock
)

// Numbers are an outcome as stores that decide in their own language pass it on,
// and remember it with an admission: granted; law, level, prev, at, unit,
// empty_at and blocked_until of the state; used, clock, retry_at, entry, how it
// went, start_at, and step of the state.
type Numbers [Width]int64

// Outcome returns the outcome that the numbers are.
func (n *Numbers) Outcome() Outcome {
	switch n[12] {
	case reused:
		return Outcome{Err: ErrReused}
	case unknownID:
		return Outcome{Err: ErrUnknownID}
	case settled:
		return Outcome{Err: ErrSettled}
	case full:
		return Outcome{Full: n[11], Clock: n[9]}
	}
	return Outcome{
		Granted: n[0],
		State: State{
			Kind: Kind(n[1]), Level: n[2], Prev: n[3], At: n[4], Unit: n[5], Step: n[14], EmptyAt: n[6], BlockedUntil: n[7],
		},
		Used: n[8], Clock: n[9], RetryAt: n[10], EntryNumber: n[11],
		Stale: n[12] == stale, Replayed: n[12] == replayed, StartAt: n[13],
	}
}

// Numbers returns the numbers of an outcome that admits.
func (out *Outcome) Numbers() Numbers {
	s := &out.State
	return Numbers{
		out.Granted, int64(s.Kind), s.Level, s.Prev, s.At, s.Unit, s.EmptyAt, s.BlockedUntil,
		out.Used, out.Clock, out.RetryAt, out.EntryNumber, done, out.StartAt, s.Step,
	}
}

// String returns the numbers with spaces between them.
func (n Numbers) String() string { return join(n[:]) }

// ParseNumbers parses what String returns.
func ParseNumbers(s string) (n Numbers, err error) {
	err = split(s, n[:])
	return n, err
}

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
