package replay

import (
	"bytes"
	"errors"
	"regexp"
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
		return w.re.Match(v.Text) != w.not, nil
	}
	return bytes.Equal(v.Text, w.text) != w.not, nil
}
