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

// TestMiddlewareOfAServersClient: all that it asks goes over the network too, by names of limits.
func TestMiddlewareOfAServersClient(t *testing.T) {
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
	far, err := client.New(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	charge := func(limit string) []httplimit.Charge {
		return []httplimit.Charge{{Limit: headgate.MustNamed(limit), Key: httplimit.ByIP}}
	}

	login := must(t, far, httplimit.HandlerConfig{OnlyFailures: true, Charges: charge("login")})
	for i, want := range []int{200, 401, 200, 401, 200, 401} {
		if w := get(login(answers(want)), ""); w.Code != want {
			t.Errorf("login %d: %d", i, w.Code)
		}
	}
	s, err := l.Inspect(t.Context(), headgate.MustNamed("login"), "192.0.2.1")
	if w := get(login(answers(200)), ""); err != nil || w.Code != 429 || s.BlockedUntil.IsZero() {
		t.Errorf("after three failures: %d, %+v, %v", w.Code, s, err)
	}

	var wrong error
	unfit := must(t, far, httplimit.HandlerConfig{
		OnlyFailures: true, Charges: charge("unfit"), OnError: func(_ *http.Request, err error) { wrong = err },
	})(answers(200))
	w := get(unfit, "")
	if n := used(t, l, headgate.MustNamed("unfit"), "192.0.2.1"); w.Code != 500 || n != "0" ||
		!strings.Contains(fmt.Sprint(wrong), "OnlyFailures") {
		t.Errorf("OnlyFailures of a token bucket: %d, %s charged, %v", w.Code, n, wrong)
	}

	settled := charge("tokens")
	settled[0].Cost, settled[0].Settle = httplimit.CostByHeader("Cost"), httplimit.SettleByHeader("Tokens")
	tokens := must(t, far, httplimit.HandlerConfig{RefundFailures: true, Charges: settled})
	served := tokens(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Tokens", "7") }))
	a, b := get(served, "Cost: 50"), get(tokens(answers(500)), "Cost: 50")
	if n := used(t, l, headgate.MustNamed("tokens"), "192.0.2.1"); a.Code != 200 || b.Code != 500 || n != "7" {
		t.Errorf("tokens: %d, %d, %s charged", a.Code, b.Code, n)
	}

	orders := must(t, far, httplimit.HandlerConfig{
		ID:      func(r *http.Request) (string, error) { return r.Header.Get("Order"), nil },
		Charges: charge("orders"),
	})(answers(201))
	for i, tt := range []struct {
		order string
		want  int
	}{{"1", 201}, {"1", 409}, {"2", 201}, {"3", 429}, {"2", 409}} {
		if w := get(orders, "Order: "+tt.order); w.Code != tt.want {
			t.Errorf("order %d: %d, want %d", i, w.Code, tt.want)
		}
	}

	var told error
	unknown := must(t, far, httplimit.HandlerConfig{
		FailOpen: true, Charges: charge("unknown"), OnError: func(_ *http.Request, err error) { told = err },
	})(answers(200))
	if w := get(unknown, ""); w.Code != 500 || !errors.Is(told, headgate.ErrInvalid) {
		t.Errorf("an unknown limit: %d, %v", w.Code, told)
	}
}
