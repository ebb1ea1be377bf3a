package edge_test

import (
	"errors"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/edge"
)

// TestQuery checks the errors of queries. A name that ends with ... may be repeated.
func TestQuery(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                  "",
		"key=a":             "",
		"limit=a&limit=b":   "",
		"key=a&key=b":       "key: stands 2 times in the query",
		"keys=a":            `query: has an unknown parameter "keys"; known are key, limit`,
		"limit...=a":        `query: has an unknown parameter "limit..."; known are key, limit`,
		"key=%zz":           `query: invalid URL escape "%zz"`,
		"key=a;limit=b":     "query: invalid semicolon separator in query",
		"%3Cscript%3E=1":    `query: has an unknown parameter "<script>"; known are key, limit`,
		"key=%C3%A4&limit=": "",
	} {
		v, err := edge.ParseQuery(raw, "key", "limit...")
		invalid, ok := errors.AsType[*headgate.InvalidError](err)
		switch {
		case want == "" && err != nil, want != "" && (!ok || invalid.Field+": "+invalid.Problem != want):
			t.Errorf("%s: got %v, want %q", raw, err, want)
		case want == "" && raw == "limit=a&limit=b" && len(v["limit"]) != 2:
			t.Errorf("%s: got %v, want 2 limits", raw, v)
		}
	}
}
