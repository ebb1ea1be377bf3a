package envoy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate/headgate/internal/server/api"
)

// MaxBody is how many bytes a body of [Server.ServeJSON] may have.
const MaxBody = 1 << 20

// maxObjects is how many objects a body of [Server.ServeJSON] may have, as over gRPC. They are counted before the body
// is decoded: 1 MiB of empty descriptors allocates 53 MiB.
const maxObjects = 5 * api.MaxCharges

// ServeJSON answers POST /json: a RateLimitRequest as JSON with a RateLimitResponse. The status is 200, or 429
// if the request is over a limit; 400 for a request that is wrong, and 500 if the store does not answer.
func (s *Server) ServeJSON(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		http.Error(w, "the body cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	if n := bytes.Count(body, []byte{'{'}); n > maxObjects {
		http.Error(w, fmt.Sprintf("the body has more than %d objects", maxObjects), http.StatusBadRequest)
		return
	}
	var q rls.RateLimitRequest
	if err := protojson.Unmarshal(body, &q); err != nil {
		http.Error(w, "the body is not a RateLimitRequest: "+err.Error(), http.StatusBadRequest)
		return
	}
	answer, problem := s.decide(r.Context(), &q)
	if problem != nil {
		// At most 500, like envoyproxy/ratelimit.
		http.Error(w, problem.Text(), min(problem.Status, http.StatusInternalServerError))
		return
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		http.Error(w, "the answer cannot be written: "+err.Error(), http.StatusInternalServerError)
		return
	}
	for _, h := range answer.GetResponseHeadersToAdd() {
		w.Header().Set(h.GetKey(), h.GetValue())
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text)
}

// ServeHealth answers GET /healthcheck: 200 and OK, or 500 without a configuration or while the store does not answer.
func (s *Server) ServeHealth(w http.ResponseWriter, r *http.Request) {
	if s.Config() == nil {
		http.Error(w, "no configuration was received yet", http.StatusInternalServerError)
		return
	}
	if err := s.service.Healthy(r.Context()); err != nil {
		http.Error(w, "the store does not answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "OK")
}
