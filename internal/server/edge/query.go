package edge

import (
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// Query reads the query of a URL. It refuses parameters that are not known, and those that stand in the query more than
// once. The name of one that may do so ends with "..." in the list.
func Query(raw string, known ...string) (url.Values, error) {
	v, err := url.ParseQuery(raw)
	if err != nil {
		return nil, headgate.Invalid("query", "%v", err)
	}
	for name, list := range v {
		several := slices.Contains(known, name+"...")
		if !several && (strings.HasSuffix(name, "...") || !slices.Contains(known, name)) {
			return nil, headgate.Invalid("query", "has an unknown parameter %+.40q; known are %s", name,
				strings.ReplaceAll(strings.Join(known, ", "), "...", ""))
		}
		if len(list) > 1 && !several {
			return nil, headgate.Invalid(name, "stands %d times in the query", len(list))
		}
	}
	return v, nil
}
