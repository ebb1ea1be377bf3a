package forwardauth

import (
	"net/http"

	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/rules"
)

// Original is original for tests.
func (h *Handler) Original(r *http.Request) (*rules.Request, error) { return h.original(r) }

// ParseQuery is parseQuery for tests.
func ParseQuery(raw string) (charges []api.Charge, byIP []bool, refused int, err error) {
	q, err := parseQuery(raw)
	for i := range q.charges {
		byIP = append(byIP, q.keyByIP(i))
	}
	return q.charges, byIP, q.refused, err
}
