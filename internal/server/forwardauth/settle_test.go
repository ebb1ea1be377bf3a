package forwardauth_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// settleRules is a config file with rules that charge estimates, and one that charges what is final.
const settleRules = `
limits:
  tokens: sliding-log 10000/1h
  bytes: sliding-log 10000/1h
  calls: sliding-log 10000/1h
rules:
  - name: model
    path: /model
    limits:
      - {limit: tokens, key: ip, cost: 500, settle: "json:usage.total"}
      - {limit: bytes, key: ip, cost: 100, settle: "header:X-Bytes"}
      - {limit: calls, key: ip}
  - name: shadow
    path: /shadow
    mode: shadow
    limits:
      - {limit: tokens, key: ip, cost: 500, settle: "json:usage.total"}
  - name: advice
    path: /advice
    mode: advise
    limits:
      - {limit: tokens, key: ip, cost: 500, settle: "json:usage.total"}
  - name: plain
    path: /
    limits: [{limit: calls, key: ip}]
`

// usedByClient returns what the client has used of each of the three limits.
func usedByClient(t *testing.T, l *headgate.Limiter) (used [3]string) {
	t.Helper()
	for i, name := range []string{"tokens", "bytes", "calls"} {
		limit, err := headgate.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Inspect(t.Context(), limit, "192.0.2.7")
		if err != nil {
			t.Fatal(err)
		}
		used[i] = s.Used.String()
	}
	return used
}

func TestTheResponseSettlesAnEstimate(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("test.yaml", []byte(settleRules))
	if err != nil {
		t.Fatal(err)
	}
	l := headgate.New(memory.New(nil), &headgate.Config{Names: c})
	h := forwardauth.New(service.New(l, c, nil), nil)
	g := &gate{Handler: h, limiter: l}
	take := func(path string) string {
		w := g.send(request("GET", "", "X-Forwarded-Uri: "+path))
		if w.Code != http.StatusNoContent {
			t.Fatalf("%s: status %d %s", path, w.Code, w.Body)
		}
		return w.Header().Get(forwardauth.SettleHeader)
	}
	if got := take("/other"); got != "" {
		t.Errorf("a rule that settles nothing answers %q", got)
	}
	if got := take("/advice"); got != "" {
		t.Errorf("a rule that charges nothing answers %q", got)
	}
	receipt := take("/model")
	if got, want := usedByClient(t, l), [3]string{"500", "100", "2"}; got != want {
		t.Errorf("before the response: %s, want %s", got, want)
	}
	settle := func(ctx context.Context, receipt, bytes, body string) (string, error) {
		header := http.Header{}
		header.Set(forwardauth.SettleHeader, receipt)
		if bytes != "" {
			header.Set("X-Bytes", bytes)
		}
		out, err := h.Settle(ctx, header, []byte(body))
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(out.Corrected)
		return string(text), err
	}
	const body = `{"usage":{"total":310.5}}`
	for _, tt := range []struct{ receipt, bytes, body, wantErr string }{
		{"", "1", body, forwardauth.SettleHeader},
		{"x", "1", body, forwardauth.SettleHeader},
		{"e30", "1", body, forwardauth.SettleHeader}, // {}
		{receipt, "", "", "the estimate stays"},
		{receipt, "", `{"usage":{}}`, "the estimate stays"},
		{receipt, "", `{"usage":{"total":"310"}}`, "is not a number"},
		{receipt, "many", body, "cost"},
		{receipt, "-1", body, "negative"},
	} {
		_, err := settle(t.Context(), tt.receipt, tt.bytes, tt.body)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%.10q %q %q: %v, want %q", tt.receipt, tt.bytes, tt.body, err, tt.wantErr)
		}
	}
	if got, want := usedByClient(t, l), [3]string{"500", "100", "2"}; got != want {
		t.Errorf("after invalid responses: %s, want %s", got, want)
	}
	otherCaller := auth.WithCaller(t.Context(), &auth.Caller{Name: "other", Role: auth.RoleTake})
	if _, err := settle(otherCaller, receipt, "70", body); !errors.Is(err, headgate.ErrUnknownID) {
		t.Errorf("by another caller: got %v, want ErrUnknownID", err)
	}
	for i, want := range []string{"[189.5,30]", "[0,0]"} { // again: nothing is left to correct
		if got, err := settle(t.Context(), receipt, "70", body); got != want || err != nil {
			t.Errorf("%d: %s, %v; want %s", i, got, err, want)
		}
	}
	if got, want := usedByClient(t, l), [3]string{"310.5", "70", "2"}; got != want {
		t.Errorf("after the response: %s, want %s", got, want)
	}
	if got, err := settle(t.Context(), take("/model"), "0", ""); got != "[100]" || err != nil {
		t.Errorf("a response without a body: %s, %v", got, err)
	}
	if got, err := settle(t.Context(), take("/shadow"), "", body); got != "[189.5]" || err != nil {
		t.Errorf("in shadow mode: %s, %v", got, err)
	}
}

// TestAReceiptNamesNoSecret checks that no error about a cost reveals a header with a token.
func TestAReceiptNamesNoSecret(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for _, name := range []string{"Headgate-Token", "headgate-token", "Authorization"} {
		header := http.Header{"Headgate-Token": {"hgt_secret"}, "Authorization": {"hgt_secret"}}
		header.Set(forwardauth.SettleHeader, base64.RawURLEncoding.EncodeToString(
			[]byte(`{"id":"i","charges":[{"limit":"api","key":"k","header":"`+name+`"}]}`)))
		_, err := g.Settle(t.Context(), header, nil)
		if !errors.Is(err, headgate.ErrInvalid) || strings.Contains(err.Error(), "hgt_secret") {
			t.Errorf("%s: got %v, want ErrInvalid without the token", name, err)
		}
	}
}
