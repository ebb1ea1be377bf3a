package headgate

import (
	"strconv"
	"strings"
)

// MarshalText implements encoding.TextMarshaler, so that a Cost can stand in JSON, a
// configuration, a flag: the decimal, and nothing for the zero Cost. A cost that every
// use refuses, such as Units(-1), is ErrInvalid.
func (c Cost) MarshalText() ([]byte, error) {
	switch {
	case c.IsZero():
		return nil, nil
	case c.coef < 0:
		return nil, Invalid("cost", "must not be below 0")
	}
	return []byte(c.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler: it reads what MarshalText writes,
// and else what [ParseCost] does. "0" is Units(0). Errors are ErrInvalid, and leave c as
// it was.
func (c *Cost) UnmarshalText(text []byte) error {
	switch string(text) {
	case "":
		*c = Cost{}
		return nil
	case "0":
		*c = nothing
		return nil
	}
	parsed, err := ParseCost(string(text))
	if err == nil {
		*c = parsed
	}
	return err
}

// Set implements flag.Value, as [Cost.UnmarshalText].
func (c *Cost) Set(text string) error { return c.UnmarshalText([]byte(text)) }

// What stands in the text of a limit beside its notation.
const (
	nameMark = " = "
	keysMark = "; max_keys "
)

// MarshalText implements encoding.TextMarshaler, so that a Limit can stand in JSON, a
// configuration, a flag: its notation; before it "NAME = " if it has a name, and after it
// "; max_keys N" if it has a maximum of keys of its own. The zero Limit has no text.
func (l Limit) MarshalText() ([]byte, error) {
	if l.IsZero() {
		return nil, nil
	}
	text := l.String()
	if l.Named() {
		text = l.Name() + nameMark + text
	}
	if n := l.r.params.MaxKeys; n > 0 {
		text += keysMark + strconv.FormatInt(n, 10)
	}
	return []byte(text), nil
}

// UnmarshalText implements encoding.TextUnmarshaler: it reads what MarshalText writes,
// and any notation that [Parse] reads. Errors are ErrInvalid, and leave l as it was.
func (l *Limit) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*l = Limit{}
		return nil
	}
	name, notation, named := strings.Cut(string(text), nameMark)
	if !named {
		name, notation = "", name
	} else if err := ValidName(name); err != nil {
		return err
	}
	notation, keys, bounded := strings.Cut(notation, keysMark)
	parsed, err := ParseNamed(name, notation)
	if err == nil && bounded {
		n, wrong := strconv.ParseInt(keys, 10, 64)
		if wrong != nil || n < 1 {
			return Invalid("max_keys", "%.100q is not a number above 0", keys)
		}
		parsed, err = parsed.WithMaxKeys(n)
	}
	if err == nil {
		*l = parsed
	}
	return err
}

// Set implements flag.Value, as [Limit.UnmarshalText].
func (l *Limit) Set(text string) error { return l.UnmarshalText([]byte(text)) }
