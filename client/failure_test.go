package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/store"
)

// TestNothingIsSentTwice: the server reads a request on a connection that was
// used before, charges, and breaks off. Go's transport would try again here if
// it took the request for one that may be repeated.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	h := handler(t)
	var calls atomic.Int64
	var connection atomic.Value // of the last call
	c := ask(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection.Store(r.RemoteAddr)
		if calls.Add(1)%2 == 1 {
			h.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}), &client.Config{Connections: 1})
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); err != nil {
		t.Fatal(err)
	}
	first := connection.Load()
	_, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a")
	if !errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want ErrUnknownOutcome", err)
	}
	if got := connection.Load(); got != first {
		t.Errorf("the connection was not used again: nothing is tested")
	}
	if got := calls.Load(); got != 2 {
		t.Errorf("%d calls, want 2", got)
	}
	if d, err := c.Check(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"}); err != nil ||
		d.Remaining != 7 {
		t.Errorf("%d would remain, %v; want 7: one for each question", d.Remaining, err)
	}
}

func TestARefusedConnectionMeansNothingWasSent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	c, err := client.New(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); !errors.Is(err, store.ErrUnavailable) ||
		errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	const one = `{"allowed":true,"limit":"few","remaining":1,"retry_after_ms":0,"reset_after_ms":1,"at":1}`
	for _, tt := range []struct {
		status int
		body   string
		want   error
		says   string
	}{
		{200, `{"answers":[` + one + `]}`, nil, ""},
		{200, `{"answers":[` + one + `,` + one + `]}`, store.ErrUnknownOutcome, "2 answers to 1"},
		{200, `{"answers":[]}`, store.ErrUnknownOutcome, "0 answers"},
		{200, `{"answers":[{}]}`, store.ErrUnknownOutcome, "neither"},
		{200, `{"answers":[null]}`, store.ErrUnknownOutcome, "neither"},
		{200, `{"answers":[` + one, store.ErrUnknownOutcome, "/v1/batch"},
		{200, ``, store.ErrUnknownOutcome, "/v1/batch"},
		{200, `<html>`, store.ErrUnknownOutcome, "/v1/batch"},
		{
			200, `{"answers":[{"problem":{"title":"Bad request","status":400,"detail":"key: long","field":"key"}}]}`,
			headgate.ErrInvalid, "key: long",
		},
		{400, `{"title":"Bad request","status":400,"detail":"body: bad"}`, headgate.ErrInvalid, "body: bad"},
		{413, `{"title":"Request too large","status":413}`, headgate.ErrInvalid, ""},
		{408, `{"title":"Request timeout","status":408}`, store.ErrUnavailable, "Request timeout"},
		{501, `{"title":"Not supported","status":501}`, headgate.ErrUnsupported, "Not supported"},
		{
			503, `{"type":"urn:headgate:unavailable","title":"Away","status":503,"detail":"Nothing was charged."}`,
			store.ErrUnavailable, "Away: Nothing",
		},
		{503, `{"title":"Away","status":503}`, store.ErrUnknownOutcome, "Away"}, // of somebody on the way
		{503, `{"type":"urn:headgate:busy","title":"Busy","status":503}`, store.ErrBusy, "Busy"},
		{503, `{"type":"urn:headgate:full","title":"Full","status":503}`, store.ErrFull, "Full"},
		{503, `{"type":"urn:headgate:outcome-unknown","title":"Away","status":503}`, store.ErrUnknownOutcome, "Away"},
		{504, `{"title":"Late","status":504}`, store.ErrUnknownOutcome, "Late"},
		{404, `{"title":"Not Found","status":404,"detail":"GET /openapi.yaml"}`, store.ErrSetup, "openapi"},
		{404, `not here`, store.ErrSetup, "is it a headgate server?"},
		{502, `<html>bad gateway`, store.ErrUnknownOutcome, "502"},
	} {
		c := ask(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		}), nil)
		_, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a")
		if !errors.Is(err, tt.want) || tt.want != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%d %s: %v; want %v saying %q", tt.status, tt.body, err, tt.want, tt.says)
		}
		if known := err != nil && strings.HasPrefix(tt.body, `{"t`); known {
			var p *api.Problem
			if !errors.As(err, &p) || p.Status != tt.status {
				t.Errorf("%d %s: the problem is not in %v", tt.status, tt.body, err)
			}
		}
	}
}

func TestATimeoutLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	c := ask(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-stop
	}), &client.Config{Timeout: 50 * time.Millisecond})
	defer close(stop)
	big := make([]headgate.Charge, 300) // goes alone
	for i := range big {
		big[i] = headgate.Charge{Limit: headgate.MustNamed("few")}
	}
	for _, charges := range [][]headgate.Charge{big[:1], big} {
		var err error
		// On a loaded machine there may be no connection in time.
		for try := 0; try < 50 && !errors.Is(err, store.ErrUnknownOutcome); try++ {
			if _, err = c.Take(t.Context(), charges...); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%d charges: %v, want DeadlineExceeded", len(charges), err)
			}
		}
		if !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%d charges: %v, want ErrUnknownOutcome", len(charges), err)
		}
	}
}

func TestAURLThatIsNone(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "ftp://host", "http://", "http://host?x=1", "http://a b"} {
		if _, err := client.New(url, nil); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), "server") {
			t.Errorf("%q: %v", url, err)
		}
	}
}
