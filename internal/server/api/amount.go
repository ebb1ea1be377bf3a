package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Amount is a number of units of cost that is not negative. In JSON it is a number, a whole one but of limits that have
// digits after the point: 0.0312 is {0, 31200000}.
type Amount struct {
	Units int64
	Nanos int32 // billionths of a unit, from 0 to 999,999,999, as google.type.Money has them
}

// nanoDigits is how many digits Nanos stands for.
const nanoDigits = 9

// String returns the shortest decimal.
func (a Amount) String() string { return string(a.append(nil)) }

// MarshalJSON implements json.Marshaler.
func (a Amount) MarshalJSON() ([]byte, error) { return a.append(nil), nil }

func (a Amount) append(b []byte) []byte {
	b = strconv.AppendInt(b, a.Units, 10)
	if a.Nanos == 0 {
		return b
	}
	rest := strconv.FormatInt(int64(a.Nanos), 10)
	rest = strings.Repeat("0", nanoDigits-len(rest)) + rest
	return append(append(b, '.'), strings.TrimRight(rest, "0")...)
}

// UnmarshalJSON implements json.Unmarshaler. It reads what MarshalJSON writes.
func (a *Amount) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	s := scanner{data: text}
	read, ok := s.amount()
	if !ok || !s.end() {
		return fmt.Errorf("%s is not a decimal of at most %d digits after the point: %w", text, nanoDigits,
			&json.UnsupportedValueError{Str: string(text)})
	}
	*a = read
	return nil
}

// amount reads an Amount.
func (s *scanner) amount() (a Amount, ok bool) {
	s.peek()
	for point := s.at; point < len(s.data); point++ {
		switch c := s.data[point]; {
		case c-'0' <= 9:
			continue
		case c != '.':
			a.Units, ok = s.integer()
			return a, ok
		}
		whole := scanner{data: s.data[s.at:point]}
		if a.Units, ok = whole.integer(); !ok {
			return a, false
		}
		s.at = point + 1
		n := s.digits()
		if n == 0 || n > nanoDigits {
			return a, false
		}
		for i := range nanoDigits {
			a.Nanos *= 10
			if i < n {
				a.Nanos += int32(s.data[point+1+i] - '0')
			}
		}
		return a, s.at == len(s.data) || s.data[s.at]|0x20 != 'e'
	}
	a.Units, ok = s.integer()
	return a, ok
}
