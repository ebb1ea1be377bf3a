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

// network is the http.RoundTripper of clients. It delivers requests to the server of the world, in any order.
type network struct {
	link
	w *world
}

// server is a process of `headgate serve`.
type server struct {
	p       *process
	handler http.Handler
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	srv := n.w.server
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
	if srv.p.dead || n.scheduler.chance(n.refusals) {
		return nil, errors.New("simulated: connection refused")
	}
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	var res *http.Response
	ctx, disconnect := context.WithCancel(context.Background())
	t := n.send(srv.p, func() {
		defer disconnect()
		request := req.Clone(ctx)
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		request.RequestURI = req.URL.RequestURI()
		w := httptest.NewRecorder()
		srv.handler.ServeHTTP(w, request)
		res = w.Result()
	})
	switch t.wait(req.Context().Done()) {
	case tripAnswered:
		return res, nil
	case tripBroken:
		return nil, errors.New("simulated: connection lost")
	}
	// The server notices later that the client has left.
	n.scheduler.spawn(srv.p, func() {
		n.scheduler.sleep(n.scheduler.between(1, n.maxLatency))
		disconnect()
	})
	return nil, req.Context().Err()
}

// link is a slow connection to another process. It loses requests and answers, and its owners refuse connections.
type link struct {
	scheduler  *scheduler
	maxLatency time.Duration // in one direction

	refusals, lostRequests, lostAnswers int // rates in thousandths
}

// trip is one request and its answer.
type trip struct {
	*link
	receiver                *process
	arrival                 chan struct{} // closed when the answer arrives
	requestLost, answerLost bool
}

// send sends a request to a process, which answers it by calling handle.
func (l *link) send(receiver *process, handle func()) *trip {
	s := l.scheduler
	t := &trip{
		link: l, receiver: receiver, arrival: make(chan struct{}),
		requestLost: s.chance(l.lostRequests), answerLost: s.chance(l.lostAnswers),
	}
	s.spawn(receiver, func() {
		s.sleep(s.between(1, l.maxLatency))
		if t.requestLost {
			return
		}
		handle()
		s.sleep(s.between(1, l.maxLatency))
		if !t.answerLost {
			close(t.arrival)
		}
	})
	return t
}

// tripEnd is how a trip ends. The values are the indexes of the channels that wait passes to sched.Wait.
type tripEnd int

const (
	tripAnswered  tripEnd = iota
	tripBroken            // the connection is broken
	tripAbandoned         // the caller has left
)

// wait waits for the end of the trip. The caller leaves when the channel is closed.
func (t *trip) wait(callerLeaves <-chan struct{}) tripEnd {
	connectionBreaks := t.receiver.killed
	if t.requestLost || t.answerLost { // the caller notices the loss within 3 s
		connectionBreaks = make(chan struct{})
		delay := t.scheduler.between(1, 3*time.Second)
		t.scheduler.spawn(t.scheduler.current.process, func() {
			t.scheduler.sleep(delay)
			close(connectionBreaks)
		})
	}
	return tripEnd(sched.Wait(sched.Forever, t.arrival, connectionBreaks, callerLeaves))
}
