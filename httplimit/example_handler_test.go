package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// hello is what the examples limit.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

// show prints the status of an answer, and a field of it if that is there.
func show(h http.Handler, r *http.Request, field string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get(field))))
}

func ExampleHandler() {
	limiter := headgate.New(memory.New(nil), nil) // or a store that replicas share
	limit := headgate.MustParse("fixed-window 2/1d from-first")
	handler := httplimit.Handler(limiter, limit, httplimit.ByIP)(hello)
	for range 3 {
		show(handler, httptest.NewRequest(http.MethodGet, "/", nil), "RateLimit-Policy")
	}
	// Output:
	// 200 "fixed-window 2/1d from-first";q=2;w=86400
	// 200 "fixed-window 2/1d from-first";q=2;w=86400
	// 429 "fixed-window 2/1d from-first";q=2;w=86400
}

// Each row of a batch counts for its sender. Of the limit of all requests, 20 % stay free for others.
func ExampleNewHandler() {
	limiter := headgate.New(memory.New(nil), nil)
	middleware, err := httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		Charges: []httplimit.Charge{
			{
				Limit: headgate.MustParse("fixed-window 100/1d from-first"),
				Key:   httplimit.FirstOf(httplimit.ByHeader("Api-Key"), httplimit.ByIP),
				Cost:  httplimit.CostByJSONArray("rows", 1<<20),
			},
			{
				Limit: headgate.MustParse("fixed-window 10/1d from-first"),
				Key:   httplimit.ByConst("all"),
				Keep:  headgate.Percent(20),
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, body := range []string{`{"rows":[1,2,3]}`, `{"rows":"none"}`, `{}`} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		show(middleware(hello), r, "RateLimit")
	}
	// Output:
	// 200 "fixed-window 100/1d from-first";r=97;t=86400, "fixed-window 10/1d from-first";r=9;t=86400
	// 400
	// 400
}

// Only wrong passwords count.
func ExampleHandlerConfig_onlyFailures() {
	limiter := headgate.New(memory.New(nil), nil)
	middleware, err := httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		OnlyFailures: true,
		Charges: []httplimit.Charge{
			{Limit: headgate.MustParse("sliding-log 2/15m block 1h"), Key: httplimit.ByIP},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	login := middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	for _, password := range []string{"secret", "secret", "secret", "guess", "guess", "secret"} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("password="+password))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		show(login, r, "Retry-After")
	}
	// Output:
	// 204
	// 204
	// 204
	// 401
	// 401
	// 429 3600
}

// The handler says what the request has cost in the end.
func ExampleSettleByHeader() {
	limiter := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("fixed-window 1000/1d from-first")
	middleware, err := httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		RefundFailures: true,
		Charges: []httplimit.Charge{{
			Limit:  limit,
			Key:    httplimit.ByConst("ada"),
			Cost:   func(*http.Request) (headgate.Cost, error) { return headgate.Units(500), nil }, // an estimate
			Settle: httplimit.SettleByHeader("Tokens"),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Tokens", "42")
		_, _ = io.Copy(w, r.Body)
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	show(handler, r, "RateLimit")
	status, err := limiter.Inspect(r.Context(), limit, "ada")
	fmt.Println(status.Used, err)
	// Output:
	// 200 "fixed-window 1000/1d from-first";r=500;t=86400
	// 42 <nil>
}

// An order that is sent twice is charged and served once.
func ExampleHandlerConfig_iD() {
	limiter := headgate.New(memory.New(nil), nil)
	middleware, err := httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		ID: func(r *http.Request) (string, error) { return r.Header.Get("Order-Id"), nil },
		Charges: []httplimit.Charge{
			{Limit: headgate.MustParse("fixed-window 10/1d from-first"), Key: httplimit.ByHeader("Api-Key")},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"ada", "ada", "bob"} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Api-Key", key)
		r.Header.Set("Order-Id", "1")
		show(middleware(hello), r, "Retry-After")
	}
	// Output:
	// 200
	// 409
	// 200
}

// A new limit is watched before it refuses.
func ExampleMode() {
	limiter := headgate.New(memory.New(nil), nil)
	middleware, err := httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		Mode:    httplimit.Shadow,
		Charges: []httplimit.Charge{{Limit: headgate.MustParse("fixed-window 1/1d from-first"), Key: httplimit.ByIP}},
		OnDecision: func(r *http.Request, d *headgate.Decision) {
			fmt.Println(r.URL.Path, d.Allowed)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		show(middleware(hello), httptest.NewRequest(http.MethodGet, "/a", nil), "RateLimit")
	}
	// Output:
	// /a true
	// 200
	// /a false
	// 200
}

// Behind proxies, the client is the last address that is no proxy.
func ExampleByProxiedIP() {
	key := httplimit.ByProxiedIP(netip.MustParsePrefix("10.0.0.0/8"))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "203.0.113.9, 192.0.2.7, 10.0.0.2")
	fmt.Println(key(r))
	// Output: 192.0.2.7 <nil>
}
