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

// where is a condition on a line: a field is or is not a text, or matches a regular expression.
type where struct {
	field string
	not   bool
	text  []byte
	re    *regexp.Regexp // nil: the text
	most  int            // bytes that the expression is matched with; 0: all
}

// What conditions may take where somebody else pays for the time.
const (
	maxWheres  = 16
	maxProgram = 500     // instructions of an expression; those of [a-z]{3} are 7
	maxMatched = 8 << 10 // bytes of a field
)

// bound refuses a condition that would take long, and bounds what it takes.
func (w *where) bound(spec string) error {
	if w.re == nil {
		return nil
	}
	w.most = maxMatched
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

// parseWhere reads field=text, field!=text, field~regex or field!~regex.
func parseWhere(spec string) (w where, err error) {
	i := strings.IndexAny(spec, "=~!")
	if i <= 0 {
		return w, headgate.Invalid("where", "%q is not such as method=POST, status!=200, path~^/api/, agent!~bot", spec)
	}
	w.field = spec[:i]
	rest, not := strings.CutPrefix(spec[i:], "!")
	w.not = not
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

// holds reports whether a line passes. One that lacks the field has an empty text there.
func (w *where) holds(v accesslog.Value) (bool, error) {
	if v.Err != nil && !errors.Is(v.Err, accesslog.ErrNoField) {
		return false, v.Err
	}
	if w.re != nil {
		text := v.Text
		if w.most > 0 {
			text = text[:min(len(text), w.most)]
		}
		return w.re.Match(text) != w.not, nil
	}
	return bytes.Equal(v.Text, w.text) != w.not, nil
}
