package replay

import (
	"bytes"
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
)

// condition is a test of a line's field: it is or is not a text, or does or does not match a regular expression.
type condition struct {
	field    string
	negated  bool
	text     []byte
	re       *regexp.Regexp // nil: compare with text
	maxBytes int            // bytes of the field that re is matched with; 0: all
}

// Bounds on conditions that a server evaluates for its clients.
const (
	maxConditions   = 16
	maxInstructions = 500     // instructions of an expression; those of [a-z]{3} are 5
	maxMatchBytes   = 8 << 10 // bytes of a field
)

// applyBounds rejects an expression that is too large, and bounds the bytes that it is matched with.
func (c *condition) applyBounds(spec string) error {
	if c.re == nil {
		return nil
	}
	c.maxBytes = maxMatchBytes
	expr, err := syntax.Parse(c.re.String(), syntax.Perl)
	if err != nil {
		return err
	}
	program, err := syntax.Compile(expr.Simplify())
	if err == nil && len(program.Inst) > maxInstructions {
		err = headgate.Invalid("where", "%.100q: the expression has %d instructions, %d are allowed here; headgate "+
			"replay has no such bound", spec, len(program.Inst), maxInstructions)
	}
	return err
}

// parseCondition reads a condition such as field=text, field!=text, field~regex or field!~regex.
func parseCondition(spec string) (c condition, err error) {
	i := strings.IndexAny(spec, "=~!")
	if i <= 0 {
		return c, headgate.Invalid("where", "%q is not such as method=POST, status!=200, path~^/api/, agent!~bot", spec)
	}
	c.field = spec[:i]
	operator, negated := strings.CutPrefix(spec[i:], "!")
	c.negated = negated
	switch {
	case strings.HasPrefix(operator, "="):
		c.text = []byte(operator[1:])
	case strings.HasPrefix(operator, "~"):
		if c.re, err = regexp.Compile(operator[1:]); err != nil {
			return c, headgate.Invalid("where", "%q: %v", spec, err)
		}
	default:
		return c, headgate.Invalid("where", "%q has ! without = or ~ after it", spec)
	}
	return c, nil
}

// holds reports whether a line's value fulfils the condition. A field that is missing counts as empty.
func (c *condition) holds(v accesslog.Value) (bool, error) {
	if v.Err != nil && !errors.Is(v.Err, accesslog.ErrNoField) {
		return false, v.Err
	}
	if c.re != nil {
		text := v.Text
		if c.maxBytes > 0 {
			text = text[:min(len(text), c.maxBytes)]
		}
		return c.re.Match(text) != c.negated, nil
	}
	return bytes.Equal(v.Text, c.text) != c.negated, nil
}
