package api

import (
	"bytes"
	"encoding/json"
)

// ScanJSON reads a batch out of JSON in its common shape: known members, each
// once, none null, strings without escapes, numbers without exponents. If it
// reports false, nothing is said about data, which may be right or wrong, and
// b is to be made anew: ask encoding/json. What it reads, encoding/json reads
// to the same effect.
func (b *Batch) ScanJSON(data []byte) bool {
	s := scanner{data: data}
	b.Requests = make([]Request, 0, guess(data))
	ok := s.object(func(name []byte) (bit uint) {
		if string(name) == "requests" && s.array(func() bool {
			b.Requests = append(b.Requests, Request{})
			return s.request(&b.Requests[len(b.Requests)-1])
		}) {
			return 1
		}
		return 0
	})
	return ok && s.end()
}

func (s *scanner) request(r *Request) bool {
	return s.object(func(name []byte) (bit uint) {
		switch string(name) {
		case "charges":
			if s.array(func() bool {
				r.Charges = append(r.Charges, Charge{})
				c := &r.Charges[len(r.Charges)-1]
				return s.object(func(name []byte) uint { return s.charge(c, name) })
			}) {
				return 8
			}
			return 0
		case "check":
			var ok bool
			if r.Check, ok = s.flag(); ok {
				return 16
			}
			return 0
		}
		return s.charge(&r.Charge, name)
	})
}

// charge reads a member of a charge.
func (s *scanner) charge(c *Charge, name []byte) (bit uint) {
	var ok bool
	switch string(name) {
	case "limit":
		c.Limit, ok = s.repeated()
		bit = 1
	case "key":
		var text []byte
		text, ok = s.text()
		c.Key, bit = string(text), 2
	case "cost":
		var text []byte
		text, ok = s.number()
		c.Cost, bit = json.Number(text), 4
	}
	if !ok {
		return 0
	}
	return bit
}

// ScanJSON reads answers that are decisions out of JSON in its common shape,
// as [Batch.ScanJSON] does.
func (a *Answers) ScanJSON(data []byte) bool {
	s := scanner{data: data}
	decisions := make([]decision, 0, guess(data))
	ok := s.object(func(name []byte) (bit uint) {
		if string(name) == "answers" && s.array(func() bool {
			decisions = append(decisions, decision{})
			return s.decision(&decisions[len(decisions)-1])
		}) {
			return 1
		}
		return 0
	})
	if !ok || !s.end() {
		return false
	}
	a.Answers = make([]Answer, len(decisions))
	for i := range decisions {
		d := &decisions[i]
		if !d.never {
			d.RetryAfterMS = &d.retry
		}
		a.Answers[i].Decision = &d.Decision
	}
	return true
}

// decision is a Decision with room for what it points to.
type decision struct {
	Decision
	retry int64
	never bool
}

func (s *scanner) decision(d *decision) bool {
	d.never = true // unless something else is said
	return s.object(func(name []byte) (bit uint) {
		var ok bool
		switch string(name) {
		case "allowed":
			d.Allowed, ok = s.flag()
			bit = 1
		case "limit":
			d.Limit, ok = s.repeated()
			bit = 2
		case "key":
			var text []byte
			text, ok = s.text()
			d.Key, bit = string(text), 4
		case "remaining":
			d.Remaining, ok = s.integer()
			bit = 8
		case "retry_after_ms":
			bit = 16
			if ok = s.word("null"); !ok {
				d.retry, ok = s.integer()
				d.never = false
			}
		case "reset_after_ms":
			d.ResetAfterMS, ok = s.integer()
			bit = 32
		case "at":
			d.At, ok = s.integer()
			bit = 64
		case "entry":
			d.Entry, ok = s.integer()
			bit = 128
		case "via":
			d.Via, ok = s.repeated()
			bit = 256
		case "replayed":
			d.Replayed, ok = s.flag()
			bit = 512
		}
		if !ok {
			return 0
		}
		return bit
	})
}

// guess says for how many elements to make room at first: not for more than
// most batches have, whatever somebody sends.
func guess(data []byte) int { return min(bytes.Count(data, []byte("{")), 1024) }
