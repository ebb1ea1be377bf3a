package forwardauth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/store/memory"
)

// TestTheFieldsOfAnswers checks the header fields of 3 admissions and a refusal, for each kind of fields.
func TestTheFieldsOfAnswers(t *testing.T) {
	t.Parallel()
	names := []string{
		"Ratelimit", "Ratelimit-Policy", "Retry-After", "X-Ratelimit-Limit", "X-Ratelimit-Remaining",
		"X-Ratelimit-Reset", "X-Should-Retry",
	}
	for _, tt := range []struct {
		kinds []string
		want  map[string]string // fields of the refusal; "some" stands for any value
	}{
		{nil, map[string]string{"Ratelimit": "some", "Ratelimit-Policy": `"api";q=3`, "Retry-After": "3600"}},
		{[]string{"x-ratelimit"}, map[string]string{
			"Retry-After": "3600", "X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "3600",
		}},
		{[]string{"draft", "x-ratelimit-epoch", "x-should-retry"}, map[string]string{
			"Ratelimit": "some", "Ratelimit-Policy": "some", "Retry-After": "3600", "X-Ratelimit-Limit": "3",
			"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "some", "X-Should-Retry": "false",
		}},
	} {
		fields, err := forwardauth.ParseFields(tt.kinds)
		if err != nil {
			t.Fatal(err)
		}
		s := memory.New(&memory.Config{Clock: func() int64 { return 1_800_000_000_000_000 }})
		t.Cleanup(func() { s.Close() })
		g := newGateWithStore(t, s, &forwardauth.Config{Fields: fields})
		for i := range 4 {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, request(http.MethodGet, "limit=api&key=a"))
			if refused := w.Code == http.StatusTooManyRequests; refused != (i == 3) {
				t.Fatalf("%v: request %d: %d", tt.kinds, i, w.Code)
			}
			for _, name := range names {
				got, want := w.Header().Get(name), tt.want[name]
				if onRefusal := name == "Retry-After" || name == "X-Should-Retry"; onRefusal && i < 3 {
					want = ""
				}
				if (got == "") != (want == "") || i == 3 && want != "some" && got != want {
					t.Errorf("%v: request %d: %s is %q, want %q", tt.kinds, i, name, got, want)
				}
			}
		}
	}
	if _, err := forwardauth.ParseFields([]string{"drafts"}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("an unknown kind: got %v, want ErrInvalid", err)
	}
}

// TestARefusalIsNeverASuccess checks that gRPC and Connect are refused with 429, so that no proxy lets them pass.
func TestARefusalIsNeverASuccess(t *testing.T) {
	t.Parallel()
	g := newGate(t, nil)
	for range 3 {
		g.ServeHTTP(httptest.NewRecorder(), request(http.MethodGet, "limit=api&key=a"))
	}
	for _, kind := range []string{
		"application/grpc", "application/grpc+proto", "application/grpc-web-text", "application/connect+json",
		"application/proto", "application/json", "text/html",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			w := httptest.NewRecorder()
			r := request(method, "limit=api&key=a", "Content-Type: "+kind, "Connect-Protocol-Version: 1")
			r.ProtoMajor = 2
			if g.ServeHTTP(w, r); w.Code != http.StatusTooManyRequests || w.Header().Get("Grpc-Status") != "" {
				t.Errorf("%s %s: got status %d, %v, want 429", method, kind, w.Code, w.Header())
			}
		}
	}
}
