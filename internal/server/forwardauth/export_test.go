package forwardauth

import (
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/rules"
)

// Original exports originalRequest.
func (h *Handler) Original(r *http.Request) (*rules.Request, error) { return h.originalRequest(r) }

// ParseQuery exports parseQuery.
func ParseQuery(raw string) (charges []api.Charge, ipBits []int, refusalStatus int, err error) {
	q, err := parseQuery(raw)
	return q.charges, q.ipBits, q.refusalStatus, err
}
