package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"time"

	"github.com/headgate/headgate/internal/sched"
)

// network is a slow http.RoundTripper that loses requests and answers, and delivers requests in any order.
type network struct {
	link
	w *world
}

type server struct {
	p       *process
	handler http.Handler
}

var (
	errRefused = errors.New("simulated: connection refused")
	errBroken  = errors.New("simulated: connection lost")
)

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	s, to := n.s, n.w.server
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
	if to.p.dead || s.chance(n.refusals) {
		return nil, errRefused
	}
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	var res *http.Response
	ctx, disconnect := context.WithCancel(context.Background())
	trip := n.send(to.p, func() {
		defer disconnect()
		res = serve(ctx, to, req, body) //nolint:bodyclose // the client closes it
	})
	switch trip.wait(req.Context().Done()) {
	case answered:
		return res, nil
	case broken:
		return nil, errBroken
	}
	// The server notices that its client is gone, in its own time.
	s.spawn(to.p, func() {
		s.sleep(s.between(1, n.latency))
		disconnect()
	})
	return nil, req.Context().Err()
}

// serve lets the server answer a copy of a request.
func serve(ctx context.Context, to *server, req *http.Request, body []byte) *http.Response {
	served := req.Clone(ctx)
	served.Body, served.ContentLength, served.RequestURI = io.NopCloser(bytes.NewReader(body)), int64(len(body)),
		req.URL.RequestURI()
	w := httptest.NewRecorder()
	to.handler.ServeHTTP(w, served)
	return w.Result()
}

// link is a slow connection to another process that loses requests and answers.
type link struct {
	s       *scheduler
	latency time.Duration // the longest, in one direction

	refusals, lostRequests, lostAnswers int // in thousandths
}

// trip is one request and its answer.
type trip struct {
	*link
	to                      *process
	answered                chan struct{}
	requestLost, answerLost bool
}

// send sends a request to a process, which answers it by do.
func (l *link) send(to *process, do func()) *trip {
	t := &trip{l, to, make(chan struct{}), l.s.chance(l.lostRequests), l.s.chance(l.lostAnswers)}
	l.s.spawn(to, func() {
		l.s.sleep(l.s.between(1, l.latency))
		if t.requestLost {
			return
		}
		do()
		l.s.sleep(l.s.between(1, l.latency))
		if !t.answerLost {
			close(t.answered)
		}
	})
	return t
}

// The ends of a trip.
const (
	answered = iota
	broken
	abandoned // by the caller
)

// wait waits until the answer has come, the connection is broken, or the caller leaves.
func (t *trip) wait(leave <-chan struct{}) int {
	breaks := t.to.killed
	if t.requestLost || t.answerLost { // the caller notices later
		breaks = make(chan struct{})
		after := t.s.between(1, 3*time.Second)
		t.s.spawn(t.s.current.process, func() {
			t.s.sleep(after)
			close(breaks)
		})
	}
	return sched.Wait(sched.Forever, t.answered, breaks, leave)
}
