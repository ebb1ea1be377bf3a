package api

import "encoding/json"

// MaxCharges is how many charges one request or batch may carry, and how many
// requests a batch may have.
const MaxCharges = 10_000

// The ReadJSON methods read one JSON value and nothing else, more strictly than
// encoding/json: a member that is not known, is written in other case or stands twice
// in its object is an error, and so is text that is not valid Unicode. A member that is null
// counts as absent. What would pass [MaxCharges] is refused before it takes
// memory. Errors are *[ReadError].

// ReadJSON reads a batch.
func (b *Batch) ReadJSON(data []byte) error {
	b.Requests = make([]Request, 0, guess(data))
	charges := 0
	return read(data, func(s *scanner, name []byte) (bit uint) {
		if string(name) == "requests" && s.array(func() bool {
			b.Requests = append(b.Requests, Request{Charge: Charge{NoKey: true}})
			r := &b.Requests[len(b.Requests)-1]
			if _, ok := s.object(func(name []byte) uint { return s.requestMember(r, name) }); !ok {
				return false
			}
			charges += max(1, len(r.Charges))
			return charges <= MaxCharges || s.wrong(s.at, "carry more than %d charges", MaxCharges)
		}) {
			return 1
		}
		return 0
	})
}

// ReadJSON reads a request.
func (r *Request) ReadJSON(data []byte) error {
	r.NoKey = true
	return read(data, func(s *scanner, name []byte) uint { return s.requestMember(r, name) })
}

// ReadJSON reads a reservation.
func (r *Reserve) ReadJSON(data []byte) error {
	r.NoKey = true
	return read(data, func(s *scanner, name []byte) uint {
		if string(name) == "wait" {
			return s.string(&r.Wait, 1<<8)
		}
		return s.requestMember(&r.Request, name)
	})
}

// ReadJSON reads a settlement.
func (r *Settle) ReadJSON(data []byte) error {
	r.NoKey = true
	return read(data, func(s *scanner, name []byte) uint {
		switch string(name) {
		case "charges":
			return s.charges(&r.Charges, 1<<3)
		case "id":
			return s.string(&r.ID, 1<<5)
		}
		return s.chargeMember(&r.Charge, name)
	})
}

// ReadJSON reads leases.
func (l *Leases) ReadJSON(data []byte) error {
	return read(data, func(s *scanner, name []byte) (bit uint) {
		if string(name) == "held" && s.array(func() bool {
			if len(l.Held) == MaxCharges {
				return s.wrong(s.at, "are more than %d", MaxCharges)
			}
			l.Held = append(l.Held, LeaseToken{NoKey: true})
			return s.held(&l.Held[len(l.Held)-1])
		}) {
			return 1
		}
		return 0
	})
}

// ReadJSON reads an inspection.
func (r *InspectRequest) ReadJSON(data []byte) error {
	r.NoKey = true
	return read(data, func(s *scanner, name []byte) uint {
		if string(name) != "attempts" {
			return s.subjectMember(&r.Subject, name)
		}
		n, ok := s.integer()
		if r.Attempts = int(n); ok {
			return 1 << 2
		}
		return 0
	})
}

// ReadJSON reads a reset.
func (r *ResetRequest) ReadJSON(data []byte) error {
	r.NoKey = true
	return read(data, func(s *scanner, name []byte) uint {
		if string(name) == "reason" {
			return s.string(&r.Reason, 1<<3)
		}
		return s.subjectMember(&r.Subject, name)
	})
}

// ReadJSON reads a block.
func (r *Block) ReadJSON(data []byte) error {
	r.NoKey = true
	return read(data, func(s *scanner, name []byte) uint {
		switch string(name) {
		case "for":
			return s.string(&r.For, 1<<2)
		case "reason":
			return s.string(&r.Reason, 1<<3)
		}
		return s.subjectMember(&r.Subject, name)
	})
}

// ReadJSON reads an override.
func (r *Override) ReadJSON(data []byte) error {
	r.NoKey = true
	return read(data, func(s *scanner, name []byte) uint {
		switch string(name) {
		case "override":
			return s.string(&r.Override, 1<<2)
		case "remove":
			var ok bool
			if r.Remove, ok = s.flag(); ok {
				return 1 << 3
			}
			return 0
		case "for":
			return s.string(&r.For, 1<<4)
		case "reason":
			return s.string(&r.Reason, 1<<5)
		}
		return s.subjectMember(&r.Subject, name)
	})
}

// ReadJSON reads an observed response.
func (r *Observe) ReadJSON(data []byte) error {
	r.NoKey = true
	return read(data, func(s *scanner, name []byte) uint {
		switch string(name) {
		case "status":
			n, ok := s.integer()
			if r.Status = int(n); ok {
				return 1 << 2
			}
			return 0
		case "headers":
			return s.headers(&r.Headers, 1<<3)
		}
		return s.subjectMember(&r.Subject, name)
	})
}

// headers reads an object of texts.
func (s *scanner) headers(to *map[string]string, bit uint) uint {
	list := map[string]string{}
	_, ok := s.object(func(name []byte) uint {
		field := string(name)
		if _, twice := list[field]; twice {
			s.wrong(s.at, "stands twice in one object")
			return 0
		}
		if len(list) == MaxHeaders {
			s.wrong(s.at, "is one of more than %d", MaxHeaders)
			return 0
		}
		var value string
		if s.string(&value, 1) == 0 {
			return 0
		}
		list[field] = value
		return anyName
	})
	if !ok {
		return 0
	}
	*to = list
	return bit
}

// read reads one object and nothing else.
func read(data []byte, member func(s *scanner, name []byte) (bit uint)) error {
	s := scanner{data: data}
	if s.peek(); s.at == len(data) {
		return &ReadError{"body", `is empty; send JSON such as {"limit":"token-bucket 5/1m","key":"alice"}`}
	}
	if _, ok := s.object(func(name []byte) uint { return member(&s, name) }); !ok || !s.end() {
		s.named("body")
		return s.err
	}
	return nil
}

func (s *scanner) requestMember(r *Request, name []byte) (bit uint) {
	switch string(name) {
	case "charges":
		return s.charges(&r.Charges, 1<<3)
	case "check":
		var ok bool
		if r.Check, ok = s.flag(); ok {
			return 1 << 4
		}
		return 0
	case "id":
		return s.string(&r.ID, 1<<5)
	case "life":
		return s.string(&r.Life, 1<<6)
	}
	return s.chargeMember(&r.Charge, name)
}

// charges reads a list of charges.
func (s *scanner) charges(list *[]Charge, bit uint) uint {
	if !s.array(func() bool {
		if len(*list) == MaxCharges {
			return s.wrong(s.at, "are more than %d", MaxCharges)
		}
		*list = append(*list, Charge{NoKey: true})
		c := &(*list)[len(*list)-1]
		_, ok := s.object(func(name []byte) uint { return s.chargeMember(c, name) })
		return ok
	}) {
		return 0
	}
	return bit
}

func (s *scanner) chargeMember(c *Charge, name []byte) (bit uint) {
	var ok bool
	switch string(name) {
	case "limit":
		c.Limit, ok = s.repeated()
		bit = 1 << 0
	case "key":
		return s.key(&c.Key, &c.NoKey, 1<<1)
	case "cost":
		var text []byte
		text, ok = s.decimal()
		c.Cost, bit = json.Number(text), 1<<2
	case "keep":
		return s.string(&c.Keep, 1<<7)
	}
	if !ok {
		return 0
	}
	return bit
}

func (s *scanner) held(h *LeaseToken) bool {
	_, ok := s.object(func(name []byte) (bit uint) {
		switch string(name) {
		case "limit":
			return s.string(&h.Limit, 1<<0)
		case "key":
			return s.key(&h.Key, &h.NoKey, 1<<1)
		case "number":
			var ok bool
			if h.Number, ok = s.integer(); ok {
				bit = 1 << 2
			}
		}
		return bit
	})
	return ok
}

// decimal reads a number, which may stand in quotes.
func (s *scanner) decimal() ([]byte, bool) {
	if s.peek() != '"' {
		return s.number()
	}
	at := s.at
	text, ok := s.text()
	if !ok {
		return nil, false
	}
	within := scanner{data: text}
	if n, ok := within.number(); !ok || len(n) == 0 || len(n) != len(text) {
		return nil, s.wrong(at, "%+.40q is not a number", text)
	}
	return text, true
}

func (s *scanner) subjectMember(r *Subject, name []byte) uint {
	switch string(name) {
	case "limit":
		return s.string(&r.Limit, 1<<0)
	case "key":
		return s.key(&r.Key, &r.NoKey, 1<<1)
	}
	return 0
}

// key reads a key and returns bit, or 0.
func (s *scanner) key(to *string, absent *bool, bit uint) uint {
	text, ok := s.text()
	if !ok {
		return 0
	}
	*to, *absent = string(text), text == nil
	return bit
}

// string reads a string and returns bit, or 0.
func (s *scanner) string(to *string, bit uint) uint {
	text, ok := s.text()
	if !ok {
		return 0
	}
	*to = string(text)
	return bit
}
