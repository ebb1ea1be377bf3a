package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/auth/authtest"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestRequestsAreNotSentTwice has the server close a connection that was used before, after it has charged a request.
// Here Go's transport would send an idempotent request again, and gRPC with a retry policy any call.
func TestRequestsAreNotSentTwice(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, testRequestsAreNotSentTwice)
}

func testRequestsAreNotSentTwice(t *testing.T, proto protocol) {
	var calls atomic.Int64
	var server *testServer
	server = proto.serve(t, serverOptions{afterBatch: func() {
		if calls.Add(1) == 2 {
			server.listener.closeConns()
		}
	}})
	c := server.client(t, &client.Config{Connections: 1})
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a")
	if !errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnknownOutcome", err)
	}
	if n := server.listener.countAccepted(); n != 1 {
		t.Errorf("got %d connections, want 1: otherwise nothing is tested", n)
	}
	if got := calls.Load(); got != 2 {
		t.Errorf("got %d calls, want 2", got)
	}
	if d, err := c.Check(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"}); err != nil ||
		d.Remaining != 8 {
		t.Errorf("got %d remaining, %v; want 8: two were taken", d.Remaining, err)
	}
}

// TestErrorsWhileTheServerIsAway checks for five verbs that a request that was not sent fails with ErrUnavailable, and
// for take that a request that was sent fails with ErrUnknownOutcome.
func TestErrorsWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, testErrorsWhileTheServerIsAway)
}

func testErrorsWhileTheServerIsAway(t *testing.T, proto protocol) {
	var stop func()
	server := proto.serve(t, serverOptions{afterBatch: func() {
		if stop != nil {
			stop()
		}
	}})
	stop = func() { server.listener.closeConns(); go server.close() } // close waits for this call
	c := server.client(t, nil)
	charge := headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"}
	verbs := map[string]func() error{
		"take":    func() error { _, err := c.Take(t.Context(), charge); return err },
		"once":    func() error { _, err := c.Once("one", 0).Take(t.Context(), charge); return err },
		"inspect": func() error { _, err := c.Inspect(t.Context(), charge.Limit, charge.Key); return err },
		"usage":   func() error { _, err := c.Usage(t.Context(), charge.Key); return err },
		"wait":    func() error { return c.Wait(t.Context(), charge) },
	}
	if err := verbs["take"](); !errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("stopped during the call: got %v, want ErrUnknownOutcome", err)
	}
	server.close()
	for name, call := range verbs {
		for range 2 { // also after a first failure
			if err := call(); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%s: got %v, want ErrUnavailable", name, err)
			}
		}
	}
}

// TestClientConnectsOnceTheServerHasStarted checks that calls fail before the server has started, and then pass.
func TestClientConnectsOnceTheServerHasStarted(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, func(t *testing.T, proto protocol) {
		socket := filepath.Join(t.TempDir(), "s")
		c := (&testServer{url: map[protocol]string{"http": "unix:", "grpc": "grpc+unix:"}[proto] + socket}).client(t, nil)
		for range 3 {
			if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("without a server: got %v, want ErrUnavailable", err)
			}
		}
		proto.serve(t, serverOptions{socket: socket})
		await.Until(t, "the server to answer", func() bool {
			_, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a")
			if err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
	})
}

// TestTokenErrors checks that a caller that is unknown or lacks the right gets a problem, and charges nothing.
func TestTokenErrors(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, func(t *testing.T, proto protocol) {
		file, tokens := authtest.Open(t, auth.Entry{Name: "web", Role: "take"})
		server := proto.serve(t, serverOptions{tokens: file})
		charge := headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"}
		for name, token := range map[string]string{"none": "", "a wrong one": "hgt_wrong"} {
			_, err := server.client(t, &client.Config{Token: token}).Take(t.Context(), charge)
			if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 401 || !errors.Is(err, store.ErrSetup) {
				t.Errorf("%s: got %v, want a problem with status 401", name, err)
			}
		}
		c := server.client(t, &client.Config{Token: tokens["web"]})
		_, err := c.Reset(t.Context(), charge.Limit, charge.Key)
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 403 || !errors.Is(err, store.ErrSetup) {
			t.Errorf("Reset by the role take: got %v, want a problem with status 403", err)
		}
		if d, err := c.Take(t.Context(), charge); err != nil || d.Remaining != 9 {
			t.Errorf("got %+v, %v, want 9 remaining", d, err)
		}
	})
}

func TestInvalidAnswers(t *testing.T) {
	t.Parallel()
	const decision = `{"allowed":true,"limit":"few","remaining":1,"retry_after_ms":0,"reset_after_ms":1,"at":1}`
	for _, tt := range []struct {
		status   int
		body     string
		want     error
		wantText string
	}{
		{200, `{"answers":[` + decision + `]}`, nil, ""},
		{200, `{"answers":[` + decision + `,` + decision + `]}`, store.ErrUnknownOutcome, "2 answers to 1"},
		{200, `{"answers":[]}`, store.ErrUnknownOutcome, "0 answers"},
		{200, `{"answers":[{}]}`, store.ErrUnknownOutcome, "neither"},
		{200, `{"answers":[null]}`, store.ErrUnknownOutcome, "neither"},
		{200, `{"answers":[` + decision, store.ErrUnknownOutcome, "/v1/batch"},
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
		{503, `{"title":"Away","status":503}`, store.ErrUnknownOutcome, "Away"}, // from a proxy on the way
		{503, `{"type":"urn:headgate:busy","title":"Busy","status":503}`, store.ErrBusy, "Busy"},
		{503, `{"type":"urn:headgate:full","title":"Full","status":503}`, store.ErrFull, "Full"},
		{503, `{"type":"urn:headgate:outcome-unknown","title":"Away","status":503}`, store.ErrUnknownOutcome, "Away"},
		{504, `{"title":"Late","status":504}`, store.ErrUnknownOutcome, "Late"},
		{404, `{"title":"Not Found","status":404,"detail":"GET /openapi.yaml"}`, store.ErrSetup, "openapi"},
		{404, `not here`, store.ErrSetup, "is it a headgate server?"},
		{502, `<html>bad gateway`, store.ErrUnknownOutcome, "502"},
	} {
		c := newClientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		}), nil)
		_, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a")
		if !errors.Is(err, tt.want) || tt.want != nil && !strings.Contains(err.Error(), tt.wantText) {
			t.Errorf("%d %s: got %v; want %v with %q", tt.status, tt.body, err, tt.want, tt.wantText)
		}
		if hasProblem := err != nil && strings.HasPrefix(tt.body, `{"t`); hasProblem { // "type" or "title"
			var p *api.Problem
			if !errors.As(err, &p) || p.Status != tt.status {
				t.Errorf("%d %s: got %v, want the problem in it", tt.status, tt.body, err)
			}
		}
	}
}

func TestTimeoutLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, testTimeoutLeavesTheOutcomeUnknown)
}

func testTimeoutLeavesTheOutcomeUnknown(t *testing.T, proto protocol) {
	release := make(chan struct{})
	c := proto.serve(t, serverOptions{beforeBatch: func([]law.Op) { <-release }}).
		client(t, &client.Config{Timeout: 50 * time.Millisecond})
	defer close(release)
	largeCharges := make([]headgate.Charge, 300) // too many for a batch
	for i := range largeCharges {
		largeCharges[i] = headgate.Charge{Limit: headgate.MustNamed("few")}
	}
	for _, charges := range [][]headgate.Charge{largeCharges[:1], largeCharges} {
		var err error
		// On a loaded machine there may be no connection in time.
		for attempt := 0; attempt < 50 && !errors.Is(err, store.ErrUnknownOutcome); attempt++ {
			if _, err = c.Take(t.Context(), charges...); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%d charges: got %v, want DeadlineExceeded", len(charges), err)
			}
		}
		if !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%d charges: got %v, want ErrUnknownOutcome", len(charges), err)
		}
	}
}

func TestInvalidURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "ftp://host", "http://", "http://host?x=1", "http://a b", "unix:", "grpc+unix:",
		"grpc://", "grpc://host", "grpc://:1", "grpc://host:1/path", "grpcs://user:pass@host:1", "grpc://host:1?x=1",
	} {
		if _, err := client.New(url, nil); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), "server") {
			t.Errorf("%q: got %v, want ErrInvalid of server", url, err)
		} else if strings.Contains(err.Error(), "pass@") {
			t.Errorf("%q: the password is in %v", url, err)
		}
	}
}
