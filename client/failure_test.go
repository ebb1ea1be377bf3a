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

// TestNothingIsSentTwice: the server reads a request on a connection that was
// used before, charges, and closes the connection. Go's transport would send an idempotent
// request again here, and so would gRPC.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	overEach(t, testNothingIsSentTwice)
}

func testNothingIsSentTwice(t *testing.T, over protocol) {
	var calls atomic.Int64
	var server *testServer
	server = over.serve(t, serverOptions{after: func() {
		if calls.Add(1) == 2 {
			server.listener.cut()
		}
	}})
	c := server.client(t, &client.Config{Connections: 1})
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a")
	if !errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want ErrUnknownOutcome", err)
	}
	if n := server.listener.accepted(); n != 1 {
		t.Errorf("%d connections: the first was not used again, so nothing is tested", n)
	}
	if got := calls.Load(); got != 2 {
		t.Errorf("%d calls, want 2", got)
	}
	if d, err := c.Check(t.Context(), headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"}); err != nil ||
		d.Remaining != 8 {
		t.Errorf("%d remain, %v; want 8: two were taken", d.Remaining, err)
	}
}

// TestAServerThatIsAway: a request that was not sent is not charged, in a batch or alone. A sent one may be charged.
func TestAServerThatIsAway(t *testing.T) {
	t.Parallel()
	overEach(t, testAServerThatIsAway)
}

func testAServerThatIsAway(t *testing.T, over protocol) {
	var stop func()
	server := over.serve(t, serverOptions{after: func() {
		if stop != nil {
			stop()
		}
	}})
	stop = func() { server.listener.cut(); go server.close() } // close waits for this call
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
		t.Errorf("stopped during the call: %v, want ErrUnknownOutcome", err)
	}
	server.close()
	for name, ask := range verbs {
		for range 2 { // the second call fails at once
			if err := ask(); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%s: %v, want ErrUnavailable", name, err)
			}
		}
	}
}

// TestAServerThatIsBack: the client connects again soon, though a call fails at once while the server is away.
func TestAServerThatIsBack(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, over protocol) {
		socket := filepath.Join(t.TempDir(), "s")
		c := (&testServer{url: map[protocol]string{"http": "unix:", "grpc": "grpc+unix:"}[over] + socket}).client(t, nil)
		for range 3 {
			if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("without a server: %v", err)
			}
		}
		over.serve(t, serverOptions{socket: socket})
		await.Until(t, "the server to answer", func() bool {
			_, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a")
			if err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
	})
}

// TestTokens: a caller that is unknown or lacks the right gets a problem, and charges nothing.
func TestTokens(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, over protocol) {
		file, tokens := authtest.Open(t, auth.Entry{Name: "web", Role: "take"})
		server := over.serve(t, serverOptions{tokens: file})
		charge := headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"}
		for name, token := range map[string]string{"none": "", "a wrong one": "hgt_wrong"} {
			_, err := server.client(t, &client.Config{Token: token}).Take(t.Context(), charge)
			if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 401 || !errors.Is(err, store.ErrSetup) {
				t.Errorf("%s: %v, want a problem with status 401", name, err)
			}
		}
		c := server.client(t, &client.Config{Token: tokens["web"]})
		_, err := c.Reset(t.Context(), charge.Limit, charge.Key)
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 403 || !errors.Is(err, store.ErrSetup) {
			t.Errorf("of another role: %v, want a problem with status 403", err)
		}
		if d, err := c.Take(t.Context(), charge); err != nil || d.Remaining != 9 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func TestInvalidAnswers(t *testing.T) {
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
	overEach(t, testATimeoutLeavesTheOutcomeUnknown)
}

func testATimeoutLeavesTheOutcomeUnknown(t *testing.T, over protocol) {
	stop := make(chan struct{})
	c := over.serve(t, serverOptions{before: func([]law.Op) { <-stop }}).
		client(t, &client.Config{Timeout: 50 * time.Millisecond})
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

func TestInvalidURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "ftp://host", "http://", "http://host?x=1", "http://a b", "unix:", "grpc+unix:",
		"grpc://", "grpc://host", "grpc://:1", "grpc://host:1/path", "grpcs://user:pass@host:1", "grpc://host:1?x=1",
	} {
		if _, err := client.New(url, nil); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), "server") {
			t.Errorf("%q: %v", url, err)
		} else if strings.Contains(err.Error(), "pass@") {
			t.Errorf("%q: the password is in %v", url, err)
		}
	}
}
