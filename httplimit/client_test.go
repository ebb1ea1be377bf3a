package httplimit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
)

// TestMiddlewareWithTheClientOfAServer checks five configurations with the client of a server as the limiter.
func TestMiddlewareWithTheClientOfAServer(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(`
limits:
  login: sliding-log 3/1d block 1d
  unfit: token-bucket 3/1d
  tokens: fixed-window 100/1d from-first
  orders: fixed-window 2/1d from-first
`))
	if err != nil {
		t.Fatal(err)
	}
	l := headgate.New(memoryStore(), &headgate.Config{Names: c})
	server := httptest.NewServer(rest.New(service.New(l, c, nil), slog.New(slog.DiscardHandler), nil))
	defer server.Close()
	remote, err := client.New(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	charge := func(limit string) []httplimit.Charge {
		return []httplimit.Charge{{Limit: headgate.MustNamed(limit), Key: httplimit.ByIP}}
	}

	login := mustHandler(t, remote, httplimit.HandlerConfig{OnlyFailures: true, Charges: charge("login")})
	for i, want := range []int{200, 401, 200, 401, 200, 401} {
		if w := send(login(respondWith(want)), ""); w.Code != want {
			t.Errorf("login %d: got %d, want %d", i, w.Code, want)
		}
	}
	s, err := l.Inspect(t.Context(), headgate.MustNamed("login"), "192.0.2.1")
	if w := send(login(respondWith(200)), ""); err != nil || w.Code != 429 || s.BlockedUntil.IsZero() {
		t.Errorf("after three failures: got %d, %+v, %v; want 429 and a block", w.Code, s, err)
	}

	var unfitErr error
	unfit := mustHandler(t, remote, httplimit.HandlerConfig{
		OnlyFailures: true, Charges: charge("unfit"), OnError: func(_ *http.Request, err error) { unfitErr = err },
	})(respondWith(200))
	w := send(unfit, "")
	if n := usedUnits(t, l, headgate.MustNamed("unfit"), "192.0.2.1"); w.Code != 500 || n != "0" ||
		!strings.Contains(fmt.Sprint(unfitErr), "OnlyFailures") {
		t.Errorf("OnlyFailures of a token bucket: got %d, %s charged, %v; want 500, 0", w.Code, n, unfitErr)
	}

	tokenCharges := charge("tokens")
	tokenCharges[0].Cost, tokenCharges[0].Settle = httplimit.CostByHeader("Cost"), httplimit.SettleByHeader("Tokens")
	tokens := mustHandler(t, remote, httplimit.HandlerConfig{RefundFailures: true, Charges: tokenCharges})
	handler := tokens(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Tokens", "7") }))
	success, failure := send(handler, "Cost: 50"), send(tokens(respondWith(500)), "Cost: 50")
	if n := usedUnits(t, l, headgate.MustNamed("tokens"), "192.0.2.1"); success.Code != 200 ||
		failure.Code != 500 || n != "7" {
		t.Errorf("tokens: got %d, %d, %s charged; want 200, 500, 7", success.Code, failure.Code, n)
	}

	orders := mustHandler(t, remote, httplimit.HandlerConfig{
		ID:      func(r *http.Request) (string, error) { return r.Header.Get("Order"), nil },
		Charges: charge("orders"),
	})(respondWith(201))
	for i, tt := range []struct {
		order string
		want  int
	}{{"1", 201}, {"1", 409}, {"2", 201}, {"3", 429}, {"2", 409}} {
		if w := send(orders, "Order: "+tt.order); w.Code != tt.want {
			t.Errorf("order %d: got %d, want %d", i, w.Code, tt.want)
		}
	}

	var unknownErr error
	unknown := mustHandler(t, remote, httplimit.HandlerConfig{
		FailOpen: true, Charges: charge("unknown"), OnError: func(_ *http.Request, err error) { unknownErr = err },
	})(respondWith(200))
	if w := send(unknown, ""); w.Code != 500 || !errors.Is(unknownErr, headgate.ErrInvalid) {
		t.Errorf("an unknown limit: got %d, %v; want 500, %v", w.Code, unknownErr, headgate.ErrInvalid)
	}
}
