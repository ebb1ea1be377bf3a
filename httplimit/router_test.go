package httplimit_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/testing/tier"
)

// routers are functions that put a middleware around POST /users/{id}, which answers 204, or 401 if the request has a
// field Fail.
var routers = map[string]func(middleware func(http.Handler) http.Handler) http.Handler{
	"net/http": func(middleware func(http.Handler) http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /users/{id}", middleware(http.HandlerFunc(answerUser)))
		return mux
	},
	"chi": func(middleware func(http.Handler) http.Handler) http.Handler {
		r := chi.NewRouter()
		r.With(middleware).Post("/users/{id}", answerUser)
		return r
	},
	"echo": func(middleware func(http.Handler) http.Handler) http.Handler {
		e := echo.New()
		e.Logger = slog.New(slog.DiscardHandler)
		e.POST("/users/:id", func(c *echo.Context) error {
			if c.Request().Header.Get("Fail") != "" {
				return echo.NewHTTPError(http.StatusUnauthorized, "wrong password") // echo writes it after the middleware has returned
			}
			return c.NoContent(http.StatusNoContent)
		}, echo.WrapMiddleware(middleware))
		return e
	},
}

// answerUser answers with 204, or with 401 if the request has a field Fail.
func answerUser(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Fail") != "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// TestRoutersAdmitExactlyTheLimit sends 300 or 1,000 requests of two users, up to 64 at once. Exactly 100 of each user
// must pass.
func TestRoutersAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	for name, router := range routers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := namedLimit("users", "fixed-window 100/1d from-first")
			server := httptest.NewServer(router(httplimit.Handler(memoryLimiter(), limit, httplimit.ByPathValue("id"))))
			defer server.Close()
			var admitted [2]atomic.Int64
			var wg sync.WaitGroup
			requests := tier.Pick(300, 1000, 1000)
			slots := make(chan struct{}, 64) // bounds the connections
			for i := range requests {
				wg.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost,
						fmt.Sprintf("%s/users/%d", server.URL, i%2), http.NoBody)
					req.Header.Set("X-Forwarded-For", fmt.Sprint("203.0.113.", i%250))
					req.Header.Set("Idempotency-Key", "1")
					resp, err := server.Client().Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					switch resp.StatusCode {
					case http.StatusNoContent:
						admitted[i%2].Add(1)
					case http.StatusTooManyRequests:
					default:
						t.Errorf("got status %d, want 204 or 429", resp.StatusCode)
					}
					if err := checkFields(resp.Header, resp.StatusCode == http.StatusTooManyRequests); err != nil {
						t.Errorf("%v: %v", err, resp.Header)
					}
				})
			}
			wg.Wait()
			if even, odd := admitted[0].Load(), admitted[1].Load(); even != 100 || odd != 100 {
				t.Errorf("got %d and %d of %d admitted, want 100", even, odd, requests/2)
			}
		})
	}
}

// TestOnlyFailuresUnderRouters checks OnlyFailures with routers; echo writes the status after the middleware.
func TestOnlyFailuresUnderRouters(t *testing.T) {
	t.Parallel()
	for name, router := range routers {
		l, limit := memoryLimiter(), headgate.MustParse("sliding-log 3/1d block 1d")
		h := router(mustHandler(t, l, httplimit.HandlerConfig{
			OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByPathValue("id")}},
		}))
		for i, want := range []int{204, 401, 204, 401, 204, 401, 429, 429} {
			r := httptest.NewRequest(http.MethodPost, "/users/eve", nil)
			if want == http.StatusUnauthorized {
				r.Header.Set("Fail", "1")
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s, request %d: got %d, want %d", name, i, w.Code, want)
			}
		}
	}
}

// fieldItem matches an item of RateLimit or RateLimit-Policy.
var fieldItem = regexp.MustCompile(`^"((?:[ !#-\[\]-~]|\\["\\])*)"((?:;[a-z]+=[0-9]{1,15})*)$`)

// checkFields checks the fields of an answer by two parsers: httpsfv, and the pattern fieldItem.
func checkFields(h http.Header, refused bool) error {
	policy, err := httpsfv.UnmarshalList(h.Values("RateLimit-Policy"))
	if err != nil || len(policy) != 1 {
		return fmt.Errorf("RateLimit-Policy: %v, %w", policy, err)
	}
	state, err := httpsfv.UnmarshalList(h.Values("RateLimit"))
	if err != nil || len(state) != 1 {
		return fmt.Errorf("RateLimit: %v, %w", state, err)
	}
	figures := map[string]int64{}
	for field, text := range map[string]string{"RateLimit-Policy": h.Get("RateLimit-Policy"), "RateLimit": h.Get("RateLimit")} {
		parts := fieldItem.FindStringSubmatch(text)
		if parts == nil || parts[1] != "users" {
			return fmt.Errorf("%s: %q", field, text)
		}
		for p := range strings.SplitSeq(strings.TrimPrefix(parts[2], ";"), ";") {
			name, value, _ := strings.Cut(p, "=")
			if figures[name], err = strconv.ParseInt(value, 10, 64); err != nil {
				return err
			}
		}
	}
	for name, want := range figures {
		member := state[0]
		if name == "q" || name == "w" {
			member = policy[0]
		}
		if got, _ := member.(httpsfv.Item).Params.Get(name); got != want {
			return fmt.Errorf("%s is %v by httpsfv, and %d", name, got, want)
		}
	}
	after, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	switch {
	case figures["q"] != 100 || figures["w"] != 86400 || len(figures) != 4:
		return errors.New("the policy is another one")
	case refused && (figures["r"] != 0 || after < 1 || after != figures["t"]):
		return errors.New("the refusal does not say when")
	case !refused && (after != 0 || figures["r"] > 99):
		return errors.New("the admission does not say what remains")
	}
	return nil
}
