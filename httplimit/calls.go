package httplimit

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
)

// refuseCall refuses a call of gRPC, gRPC-Web or Connect in its own protocol. It returns false for other requests.
// Clients of these protocols read a plain 429 as UNAVAILABLE: an outage, after which some send the call again at once.
func (m *middleware) refuseCall(w http.ResponseWriter, r *http.Request, d *headgate.Decision) bool {
	h, message := w.Header(), "Quota exceeded: the call was refused and has charged nothing. "+whenItCanPass(d)
	contentType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	contentType = strings.ToLower(strings.TrimSpace(contentType))
	baseType, _, _ := strings.Cut(contentType, "+")
	post := r.Method == http.MethodPost
	switch {
	case post && (baseType == "application/grpc" && r.ProtoMajor == 2 || baseType == "application/grpc-web" ||
		baseType == "application/grpc-web-text"):
		// Without messages, the trailers are sent in the header, in all of these protocols.
		h.Set("Grpc-Status", "8")      // resource_exhausted
		h.Set("Grpc-Message", message) // needs no escaping
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(PushbackMillis(d, m.cfg.NoRetryBeyond), 10))
		writeCall(w, http.StatusOK, contentType, nil)
	case post && baseType == "application/connect": // a stream
		end, _ := json.Marshal(map[string]any{"error": connectError{"resource_exhausted", message}})
		frame := binary.BigEndian.AppendUint32([]byte{2}, uint32(len(end))) // 2: the end of the stream
		writeCall(w, http.StatusOK, contentType, append(frame, end...))
	case post && (contentType == "application/proto" || r.Header.Get("Connect-Protocol-Version") != ""),
		r.Method == http.MethodGet && r.URL.Query().Get("connect") == "v1":
		body, _ := json.Marshal(connectError{"resource_exhausted", message})
		writeCall(w, m.cfg.Status, "application/json", body)
	default:
		return false
	}
	return true
}

// connectError is an error in the JSON form of the Connect protocol.
type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func writeCall(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if body != nil {
		_, _ = w.Write(body) // the client may be gone
	}
}
