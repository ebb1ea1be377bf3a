package api

import "bytes"

// ScanJSON reads answers that are decisions out of JSON in its common shape. If it
// reports false, nothing is said about data, which may be right or wrong, and a is
// to be rebuilt: ask encoding/json. What it reads, encoding/json reads to the same
// effect.
func (a *Answers) ScanJSON(data []byte) bool {
	s := scanner{data: data}
	decisions := make([]decision, 0, guess(data))
	_, ok := s.object(func(name []byte) (bit uint) {
		if string(name) == "answers" && s.array(func() bool {
			decisions = append(decisions, decision{})
			return s.decision(&decisions[len(decisions)-1])
		}) {
			return 1
		}
		return 0
	})
	if !ok || !s.end() || len(decisions) == 0 {
		return false
	}
	a.Answers = make([]Answer, len(decisions))
	for i := range decisions {
		d := &decisions[i]
		d.point()
		a.Answers[i].Decision = &d.Decision
	}
	return true
}

// decision is a Decision with room for what it points to.
type decision struct {
	Decision
	retry retry
	each  []retry // of Each
}

// retry is a time after which to try again.
type retry struct {
	ms  int64
	say bool // else null, or nothing was said
}

// point lets the Decision point to what there is room for.
func (d *decision) point() {
	if d.retry.say {
		d.RetryAfterMS = &d.retry.ms
	}
	for i := range d.each {
		if d.each[i].say {
			d.Each[i].RetryAfterMS = &d.each[i].ms
		}
	}
}

func (s *scanner) retry(r *retry) bool {
	if s.null() {
		*r = retry{}
		return true
	}
	ms, ok := s.integer()
	*r = retry{ms, ok}
	return ok
}

func (s *scanner) decision(d *decision) bool {
	seen, ok := s.object(func(name []byte) (bit uint) {
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
			d.Remaining, ok = s.amount()
			bit = 8
		case "retry_after_ms":
			ok, bit = s.retry(&d.retry), 16
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
		case "applied":
			d.Applied, ok = s.repeated()
			bit = 2048
		case "capacity":
			d.Capacity, ok = s.amount()
			bit = 4096
		case "each":
			ok = s.array(func() bool {
				d.Each, d.each = append(d.Each, Figures{}), append(d.each, retry{})
				n := len(d.Each) - 1
				return s.figures(&d.Each[n], &d.each[n])
			})
			ok, bit = ok && len(d.Each) > 0, 8192
		}
		if !ok {
			return 0
		}
		return bit
	})
	return ok && seen != 0
}

func (s *scanner) figures(f *Figures, r *retry) bool {
	seen, ok := s.object(func(name []byte) (bit uint) {
		var ok bool
		switch string(name) {
		case "charge":
			var n int64
			n, ok = s.integer()
			f.Charge, bit = int(n), 1
		case "allowed":
			f.Allowed, ok = s.flag()
			bit = 2
		case "limit":
			f.Limit, ok = s.repeated()
			bit = 4
		case "key":
			var text []byte
			text, ok = s.text()
			f.Key, bit = string(text), 8
		case "capacity":
			f.Capacity, ok = s.amount()
			bit = 16
		case "remaining":
			f.Remaining, ok = s.amount()
			bit = 32
		case "retry_after_ms":
			ok, bit = s.retry(r), 64
		case "reset_after_ms":
			f.ResetAfterMS, ok = s.integer()
			bit = 128
		case "applied":
			f.Applied, ok = s.repeated()
			bit = 256
		}
		if !ok {
			return 0
		}
		return bit
	})
	return ok && seen != 0
}

// guess says for how many elements to make room at first: not for more than
// most batches have, whatever somebody sends.
func guess(data []byte) int { return min(bytes.Count(data, []byte("{")), 1024) }
