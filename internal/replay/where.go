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
	maxConditions = 16
	maxProgram    = 500     // instructions of an expression; those of [a-z]{3} are 7
	maxMatched    = 8 << 10 // bytes of a field
)

// bound rejects an expression that is too large, and bounds the bytes that it is matched with.
func (w *condition) bound(spec string) error {
	if w.re == nil {
		return nil
	}
	w.maxBytes = maxMatched
	parsed, err := syntax.Parse(w.re.String(), syntax.Perl)
	if err != nil {
		return err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err == nil && len(program.Inst) > maxProgram {
		err = headgate.Invalid("where", "%.100q: the expression has %d instructions, %d are allowed here; headgate "+
			"replay has no such bound", spec, len(program.Inst), maxProgram)
	}
	return err
}

// parseCondition reads field=text, field!=text, field~regex or field!~regex.
func parseCondition(spec string) (w condition, err error) {
	i := strings.IndexAny(spec, "=~!")
	if i <= 0 {
		return w, headgate.Invalid("where", "%q is not such as method=POST, status!=200, path~^/api/, agent!~bot", spec)
	}
	w.field = spec[:i]
	rest, not := strings.CutPrefix(spec[i:], "!")
	w.negated = not
	switch {
	case strings.HasPrefix(rest, "="):
		w.text = []byte(rest[1:])
	case strings.HasPrefix(rest, "~"):
		if w.re, err = regexp.Compile(rest[1:]); err != nil {
			return w, headgate.Invalid("where", "%q: %v", spec, err)
		}
	default:
		return w, headgate.Invalid("where", "%q has ! without = or ~ after it", spec)
	}
	return w, nil
}

// holds reports whether a line's value fulfils the condition. A field that is missing counts as empty.
func (w *condition) holds(v accesslog.Value) (bool, error) {
	if v.Err != nil && !errors.Is(v.Err, accesslog.ErrNoField) {
		return false, v.Err
	}
	if w.re != nil {
		text := v.Text
		if w.maxBytes > 0 {
			text = text[:min(len(text), w.maxBytes)]
		}
		return w.re.Match(text) != w.negated, nil
	}
	return bytes.Equal(v.Text, w.text) != w.negated, nil
}
