package forwardauth

import (
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/rules"
)

// Original exports original.
func (h *Handler) Original(r *http.Request) (*rules.Request, error) { return h.original(r) }

// ParseQuery exports parseQuery.
func ParseQuery(raw string) (charges []api.Charge, byIP []int, refused int, err error) {
	q, err := parseQuery(raw)
	return q.charges, q.byIP, q.refused, err
}
