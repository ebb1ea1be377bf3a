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
	if to.p.dead || s.chance(n.refused) {
		return nil, errRefused
	}
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	var res *http.Response
	ctx, gone := context.WithCancel(context.Background())
	trip := n.send(to.p, func() {
		defer gone()
		res = serve(ctx, to, req, body) //nolint:bodyclose // it is the client's
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
		gone()
	})
	return nil, req.Context().Err()
}

func serve(ctx context.Context, to *server, req *http.Request, body []byte) *http.Response {
	got := req.Clone(ctx)
	got.Body, got.ContentLength, got.RequestURI = io.NopCloser(bytes.NewReader(body)), int64(len(body)),
		req.URL.RequestURI()
	w := httptest.NewRecorder()
	to.handler.ServeHTTP(w, got)
	return w.Result()
}

// link is a slow connection to another process that loses requests and answers.
type link struct {
	s       *scheduler
	latency time.Duration // the most, in one direction

	refused, lostBefore, lostAfter int // in thousandths
}

// trip is one request and its answer.
type trip struct {
	*link
	to                    *process
	answered              chan struct{}
	lostBefore, lostAfter bool
}

func (l *link) send(to *process, do func()) *trip {
	t := &trip{l, to, make(chan struct{}), l.s.chance(l.lostBefore), l.s.chance(l.lostAfter)}
	l.s.spawn(to, func() {
		l.s.sleep(l.s.between(1, l.latency))
		if t.lostBefore {
			return
		}
		do()
		l.s.sleep(l.s.between(1, l.latency))
		if !t.lostAfter {
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
	if t.lostBefore || t.lostAfter { // the caller notices later
		breaks = make(chan struct{})
		after := t.s.between(1, 3*time.Second)
		t.s.spawn(t.s.cur.of, func() {
			t.s.sleep(after)
			close(breaks)
		})
	}
	return sched.Wait(sched.Forever, t.answered, breaks, leave)
}
