package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
)

// TestCallAnswersAreEqualOverHTTPAndGRPC compares the answers over both protocols, for each path that gRPC serves too.
func TestCallAnswersAreEqualOverHTTPAndGRPC(t *testing.T) {
	t.Parallel()
	few := api.Charge{Limit: "few", Key: "k", Cost: "2"}
	jobs := api.Charge{Limit: "jobs", Key: "k"}
	onceRequest := api.Request{Charge: few, ID: "one", Life: "10m"}
	requests := []struct {
		method, path string
		in           any
		out          func() any
	}{
		{"POST", "/v1/take", &onceRequest, newAnswer[api.Decision]},
		{"POST", "/v1/take", api.Request{Charges: []api.Charge{few, jobs}}, newAnswer[api.Decision]}, // jobs are held
		{"POST", "/v1/take", api.Request{Charges: []api.Charge{few, {Limit: "api", Key: "k"}}}, newAnswer[api.Decision]},
		{"POST", "/v1/take", map[string]any{"limit": "few"}, newAnswer[api.Decision]}, // without a key
		{"POST", "/v1/take", map[string]any{"limit": "few", "key": ""}, newAnswer[any]},
		{"POST", "/v1/take", map[string]any{"limit": "few", "key": 1}, newAnswer[any]},
		{"POST", "/v1/check", &api.Request{Charge: few}, newAnswer[api.Decision]},
		{"POST", "/v1/fill-up", &api.Request{Charge: api.Charge{Limit: "few", Key: "fill", Cost: "11"}}, newAnswer[api.Filled]},
		{"POST", "/v1/batch", &api.Batch{Requests: []api.Request{
			{Charge: few, Check: true},
			{Charge: api.Charge{Limit: "nope", Key: "k"}},
		}}, newAnswer[api.Answers]},
		{"POST", "/v1/reserve", &api.Reserve{Request: api.Request{Charge: few}}, newAnswer[api.Reserved]},
		{"POST", "/v1/extend", &api.Request{Charge: api.Charge{Limit: "few", Key: "k", Cost: "3"}, ID: "one"}, newAnswer[api.Extended]},
		{"POST", "/v1/debit", &api.Request{Charge: api.Charge{Limit: "few", Key: "work", Cost: "30"}, ID: "work"}, newAnswer[api.Debited]},
		{"POST", "/v1/debit", &api.Request{Charge: few}, newAnswer[api.Debited]}, // without an id
		{"POST", "/v1/refund", &api.Refund{Subject: api.Subject{Limit: "few", Key: "work"}, Cost: "4", Reason: "r"}, newAnswer[api.Refunded]},
		{"POST", "/v1/settle", &api.Settle{Charge: few, ID: "one"}, newAnswer[api.Settled]},
		{"POST", "/v1/cancel", &api.Settle{Charge: api.Charge{Limit: "few", Key: "k"}, ID: "two"}, newAnswer[api.Settled]},
		{"POST", "/v1/acquire", &api.Request{Charge: jobs}, newAnswer[api.Acquired]},
		{"POST", "/v1/renew", api.Leases{Held: []api.LeaseToken{{Limit: "jobs", Key: "k", Number: 9}}}, newAnswer[api.Lost]},
		{"POST", "/v1/release", api.Leases{Held: []api.LeaseToken{{Limit: "jobs", Key: "k", Number: 9}}}, newAnswer[api.Lost]},
		{"POST", "/v1/inspect", api.InspectRequest{Subject: api.Subject{Limit: "few", Key: "k"}, Attempts: 5}, newAnswer[api.Status]},
		{"POST", "/v1/explain", api.Explain{Method: "GET", URI: "/a?b", Headers: []string{"X-User: u"}}, newAnswer[api.Explanation]},
		{"POST", "/v1/block", &api.Block{Subject: api.Subject{Limit: "few", Key: "k"}, For: "1h", Reason: "r"}, newAnswer[api.Status]},
		{"POST", "/v1/observe", api.Observe{
			Subject: api.Subject{Limit: "few", Key: "provider"}, Status: 200, Headers: map[string]string{"Retry-After": "20"},
		}, newAnswer[api.Observed]},
		{"POST", "/v1/observe", &api.Observe{
			Subject: api.Subject{Limit: "few", Key: "k"}, Status: 99, Headers: map[string]string{"A": "b"},
		}, newAnswer[api.Observed]},
		{"GET", "/v1/limits", nil, newAnswer[api.Limits]},
		{"GET", "/v1/cells", nil, newAnswer[api.Cells]},
		{"GET", "/v1/cells", &api.CellsQuery{Limit: "few", Blocked: true, Max: 1}, newAnswer[api.Cells]},
		{"GET", "/v1/cells", api.CellsQuery{AfterLimit: "few", AfterKey: "fill"}, newAnswer[api.Cells]},
		{"GET", "/v1/cells", api.CellsQuery{Max: -1}, newAnswer[api.Cells]},
		{"GET", "/v1/usage", &api.UsageQuery{Key: "k", Limits: []string{"few", "api"}, Authors: true}, newAnswer[api.Usage]},
		{"GET", "/v1/usage", api.UsageQuery{Key: "nobody"}, newAnswer[api.Usage]},
		{"POST", "/v1/reset", &api.ResetRequest{Subject: api.Subject{Limit: "few", Key: "k"}, Reason: "r"}, newAnswer[api.Reset]},
		{"POST", "/v1/limit", api.SetLimit{Name: "few", Limit: "token-bucket 20/1m", Reason: "r", DryRun: true}, newAnswer[api.Changed]},
		{"POST", "/v1/limit", &api.SetLimit{Name: "few", Limit: "token-bucket 20/1m", Seen: new(int64)}, newAnswer[api.Changed]},
		{"POST", "/v1/limit", map[string]any{"name": "few", "limit": "token-bucket 20/1m", "description": "d"}, newAnswer[api.Changed]},
		{"POST", "/v1/override", api.Override{
			Subject: api.Subject{Limit: "few", Key: "k"}, Override: "token-bucket 99/1m", For: "1h",
		}, newAnswer[api.Changed]},
		{"POST", "/v1/plan", &api.SetPlan{Key: "k", Plan: "gold", Reason: "r"}, newAnswer[api.Changed]},
		{"POST", "/v1/plan", map[string]any{"remove": true}, newAnswer[api.Changed]},
		{"POST", "/v1/rollback", map[string]any{"reason": "r"}, newAnswer[api.Changed]},
		{"POST", "/v1/rollback", api.Rollback{Version: 1, Limits: []string{"few"}}, newAnswer[api.Changed]},
	}
	paths := map[string]bool{}
	for _, r := range requests {
		paths[r.path] = true
	}
	if got, want := len(paths), len(pb.HeadgateService_ServiceDesc.Methods); got != want {
		t.Errorf("got %d paths, want one for each of the %d methods of the service", got, want)
	}
	answers := map[protocol][]string{}
	for _, proto := range []protocol{"http", "grpc"} {
		failures := 0
		c := proto.serve(t, serverOptions{file: limits + `  jobs: concurrency 1 ttl 1m
plans: {gold: {few: token-bucket 1000/1m}}
rules:
  - name: all
    limits:
      - {limit: few, key: "header:X-User"}
`, storeNames: true, clock: func() int64 { return 1_700_000_000_000_000 }}).client(t, nil)
		for _, r := range requests {
			out := r.out()
			err := c.Call(t.Context(), r.method, r.path, r.in, out)
			if err != nil {
				failures++
				invalid, _ := errors.AsType[*headgate.InvalidError](err)
				field := ""
				if invalid != nil {
					field = invalid.Field
				}
				out = map[string]any{
					"invalid": errors.Is(err, headgate.ErrInvalid), "field": field,
					"unknown": errors.Is(err, headgate.ErrUnknownID),
				}
			}
			text, err := json.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			answers[proto] = append(answers[proto], untilTime.ReplaceAllString(string(text), "until then"))
		}
		if failures != 10 { // the rows with an invalid or missing field, an unknown id or an old version
			t.Errorf("%s: got %d failed requests, want 10: %q", proto, failures, answers[proto])
		}
	}
	for i, r := range requests {
		if h, g := answers["http"][i], answers["grpc"][i]; h != g {
			t.Errorf("%s %s %+v: got over HTTP\n%s\nand over gRPC\n%s", r.method, r.path, r.in, h, g)
		}
	}
}

// untilTime matches the end of an override. It differs, since the clock of the catalog is the clock of this machine.
var untilTime = regexp.MustCompile(`until [0-9T:.-]+Z`)

func newAnswer[T any]() any { return new(T) }

// TestClientCertificates checks over both protocols that a client shows its certificate, and trusts only Config.TLS.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	authority := dbtest.NewAuthority(t)
	roots := x509.NewCertPool()
	if pem, err := os.ReadFile(authority.File); err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal(err)
	}
	loadCert := func(c dbtest.Certificate) []tls.Certificate {
		pair := authority.Issue(t, c)
		cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{cert}
	}
	serverCert := loadCert(dbtest.Certificate{Name: "server", Hosts: []string{"127.0.0.1"}})
	clientCert := loadCert(dbtest.Certificate{Name: "web"})
	overEachProtocol(t, func(t *testing.T, proto protocol) {
		s := proto.serve(t, serverOptions{tls: &tls.Config{
			Certificates: serverCert, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
		}})
		for name, tt := range map[string]struct {
			config *tls.Config
			wantOK bool
		}{
			"both":           {&tls.Config{RootCAs: roots, Certificates: clientCert}, true},
			"no certificate": {&tls.Config{RootCAs: roots}, false},
			"system roots":   {&tls.Config{Certificates: clientCert}, false},
			"no TLS config":  {nil, false},
		} {
			_, err := s.client(t, &client.Config{TLS: tt.config}).Allow(t.Context(), headgate.MustNamed("few"), "a")
			if tt.wantOK != (err == nil) || err != nil && !errors.Is(err, store.ErrUnavailable) &&
				!errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%s: got %v, want success %v", name, err, tt.wantOK)
			}
		}
	})
}

func TestUnixSockets(t *testing.T) {
	t.Parallel()
	overEachProtocol(t, func(t *testing.T, proto protocol) {
		s := proto.serve(t, serverOptions{socket: filepath.Join(t.TempDir(), "a b%20?.sock")})
		d, err := s.client(t, nil).Allow(t.Context(), headgate.MustNamed("few"), "a")
		if err != nil || d.Remaining != 9 {
			t.Errorf("%s: got %+v, %v, want 9 remaining", s.url, d, err)
		}
	})
}
