package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/server/api"
)

// network is the network between a client and a server. It is slow, it loses requests and
// answers, and it delivers requests twice, in any order.
type network struct {
	s       *scheduler
	server  func() *server // the one that answers now
	latency time.Duration

	refused, lostBefore, lostAfter, twice int // in thousandths
	doubled                               func(path string, body []byte)
}

// server is a process that serves.
type server struct {
	p       *process
	handler http.Handler
}

var (
	errRefused = errors.New("simulated: connection refused")
	errBroken  = errors.New("simulated: connection lost")
)

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	s, to := n.s, n.server()
	trace := httptrace.ContextClientTrace(req.Context())
	if trace != nil && trace.GetConn != nil {
		trace.GetConn("simulated")
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body.Close()
	}
	if to.p.dead || s.chance(n.refused) {
		return nil, errRefused
	}
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	var res *http.Response
	answered, broken := make(chan struct{}), make(chan struct{})
	lostBefore, lostAfter := s.chance(n.lostBefore), s.chance(n.lostAfter)
	ctx, gone := context.WithCancel(context.Background())
	s.spawn(to.p, func() {
		defer gone()
		s.sleep(s.between(1, n.latency))
		if lostBefore {
			return
		}
		got := n.serve(ctx, to, req, body) //nolint:bodyclose // it is the client's
		s.sleep(s.between(1, n.latency))
		if !lostAfter {
			res = got
			close(answered)
		}
	})
	if s.chance(n.twice) && req.URL.Path != "/v1/renew" {
		n.doubled(req.URL.Path, body)
		s.spawn(to.p, func() {
			s.sleep(s.between(1, 2*time.Second))
			_ = n.serve(context.Background(), to, req, body).Body.Close()
		})
	}
	if lostBefore || lostAfter {
		after, from := s.between(1, 3*time.Second), s.cur.of
		s.spawn(from, func() {
			s.sleep(after)
			close(broken)
		})
	} else {
		broken = to.p.killed
	}
	switch sched.Wait(sched.Forever, answered, broken, req.Context().Done()) {
	case 0:
		return res, nil
	case 1:
		return nil, errBroken
	}
	// The server notices that its client is gone, in its own time.
	s.spawn(to.p, func() {
		s.sleep(s.between(1, n.latency))
		gone()
	})
	return nil, req.Context().Err()
}

// serve lets a server answer a request.
func (n *network) serve(ctx context.Context, to *server, req *http.Request, body []byte) *http.Response {
	got := req.Clone(ctx)
	got.Body, got.ContentLength, got.RequestURI = io.NopCloser(bytes.NewReader(body)), int64(len(body)),
		req.URL.RequestURI()
	w := httptest.NewRecorder()
	to.handler.ServeHTTP(w, got)
	return w.Result()
}

// doubled records that the network delivers a request twice: what the second copy does,
// nobody hears. With an id it is charged if the first copy was refused. The second copy of
// a cancellation also cancels what has been charged under that id since the first.
func (w *world) doubled(path string, body []byte) {
	var all struct {
		Requests []json.RawMessage `json:"requests"`
	}
	verb := map[string]string{
		"/v1/batch": history.Take, "/v1/take": history.Take, "/v1/acquire": history.Acquire,
		"/v1/reset": history.Reset, "/v1/block": history.Block, "/v1/reserve": history.Reserve,
		"/v1/cancel": history.Cancel, "/v1/extend": history.Extend,
	}[path]
	if verb == "" { // to do it twice is to do it once
		return
	}
	list := []json.RawMessage{body}
	if path == "/v1/batch" && json.Unmarshal(body, &all) == nil {
		list = all.Requests
	}
	for _, text := range list {
		var r api.Request
		if json.Unmarshal(text, &r) != nil || r.Check {
			continue
		}
		if r.Charges == nil {
			r.Charges = []api.Charge{r.Charge}
		}
		var charges []charge
		for _, c := range r.Charges {
			for _, l := range append([]*limit{w.held}, w.taken...) {
				if l != nil && l.name == c.Limit {
					charges = append(charges, charge{of: l, version: 1, key: c.Key, cost: costOf(c.Cost)})
				}
			}
		}
		if len(charges) > 0 {
			call := history.Call{Verb: verb, For: time.Minute.Microseconds(), Front: "server"}
			if verb == history.Take || verb == history.Cancel || verb == history.Extend {
				call.Idem = r.ID
			}
			for i := range charges {
				call.Charges = append(call.Charges, charges[i].told())
			}
			w.rec.Unheard("network", call)
		}
	}
}

func costOf(n json.Number) headgate.Cost {
	if n == "" {
		return headgate.Cost{}
	}
	return headgate.MustCost(n.String())
}
