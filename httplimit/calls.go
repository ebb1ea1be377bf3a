package httplimit

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// refuseCall answers a call of gRPC, gRPC-Web or Connect that a limit refuses, and reports whether the request is one.
// Their clients take a plain 429 for UNAVAILABLE: an outage, after which some send the call again at once.
func (m *middleware) refuseCall(w http.ResponseWriter, r *http.Request, d *headgate.Decision) bool {
	h, message := w.Header(), "Quota exceeded: the call was refused and has charged nothing. "+passes(d)
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	base, _, _ := strings.Cut(kind, "+")
	post := r.Method == http.MethodPost
	switch {
	case post && (base == "application/grpc" && r.ProtoMajor == 2 || base == "application/grpc-web" ||
		base == "application/grpc-web-text"):
		// There are no messages, so the trailers stand in the header, in all of these.
		h.Set("Grpc-Status", "8")
		h.Set("Grpc-Message", message) // which has nothing to escape
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(PushbackMillis(d, m.cfg.NoRetryBeyond), 10))
		writeCall(w, http.StatusOK, kind, nil)
	case post && base == "application/connect": // a stream
		end, _ := json.Marshal(map[string]any{"error": connectError{"resource_exhausted", message}})
		frame := binary.BigEndian.AppendUint32([]byte{2}, uint32(len(end))) // 2: the end of the stream
		writeCall(w, http.StatusOK, kind, append(frame, end...))
	case post && (kind == "application/proto" || r.Header.Get("Connect-Protocol-Version") != ""),
		r.Method == http.MethodGet && r.URL.Query().Get("connect") == "v1":
		body, _ := json.Marshal(connectError{"resource_exhausted", message})
		writeCall(w, m.cfg.Status, "application/json", body)
	default:
		return false
	}
	return true
}

// connectError is an error as the protocol of Connect has it.
type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func writeCall(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if body != nil {
		_, _ = w.Write(body) // the client may be gone
	}
}
