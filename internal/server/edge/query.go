package edge

import (
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// ParseQuery parses the query of a URL. It rejects unknown and repeated parameters. A name in known that ends with
// "..." is of a parameter that may be repeated.
func ParseQuery(raw string, known ...string) (url.Values, error) {
	v, err := url.ParseQuery(raw)
	if err != nil {
		return nil, headgate.Invalid("query", "%v", err)
	}
	for name, list := range v {
		repeatable := slices.Contains(known, name+"...")
		if !repeatable && (strings.HasSuffix(name, "...") || !slices.Contains(known, name)) {
			return nil, headgate.Invalid("query", "has an unknown parameter %+.40q; known are %s", name,
				strings.ReplaceAll(strings.Join(known, ", "), "...", ""))
		}
		if len(list) > 1 && !repeatable {
			return nil, headgate.Invalid(name, "stands %d times in the query", len(list))
		}
	}
	return v, nil
}
