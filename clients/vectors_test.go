package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

// send sends a body to a path of the server.
func (s *testServer) send(method, path string, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Header.Set("X-Forwarded-Uri", "/")
	s.mux.ServeHTTP(w, r)
	return w
}

// decodeExactly decodes JSON with all digits of its numbers.
func decodeExactly(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// TestVectors sends the arithmetic vectors to a server and compares whole answers, and of the header vectors statuses
// and fields. In its bubble time stands still, since delays count from the answer.
func TestVectors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testVectors)
}

func testVectors(t *testing.T) {
	v := readVectors(t)
	if len(v.Arithmetic) < 20 || len(v.Headers) < 5 || len(v.Errors) < 15 || len(v.Answers) < 15 {
		t.Fatalf("got %d, %d, %d, %d vectors, want 20, 5, 15, 15 at least", len(v.Arithmetic), len(v.Headers), len(v.Errors), len(v.Answers))
	}
	s := newTestServer(v)
	hasDifferences := false
	for _, a := range v.Arithmetic {
		s.reset()
		for i := range a.Steps {
			st := &a.Steps[i]
			s.offset.Store(st.AtMS)
			w := s.send(http.MethodPost, "/v1/"+st.Verb, st.In)
			got, want := decodeExactly(t, w.Body.Bytes()), decodeExactly(t, st.Want)
			if w.Code != http.StatusOK || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, step %d: status %d\n got %v\nwant %v", a.Name, i, w.Code, got, want)
				st.Want, hasDifferences = bytes.TrimSpace(w.Body.Bytes()), true
			}
		}
	}
	for _, h := range v.Headers {
		s.reset()
		for i := range h.Steps {
			st := &h.Steps[i]
			s.offset.Store(st.AtMS)
			w := s.send(http.MethodGet, "/v1/auth?"+st.Query, nil)
			got := map[string]string{"status": fmt.Sprint(w.Code)}
			for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After"} {
				if w.Header().Get(name) != "" {
					got[name] = w.Header().Get(name)
				}
			}
			if !maps.Equal(got, st.Want) {
				t.Errorf("%s, step %d:\n got %v\nwant %v", h.Name, i, got, st.Want)
				st.Want, hasDifferences = got, true
			}
		}
	}
	if hasDifferences {
		t.Error(saveVectors(v))
	}
}

// TestErrorVectors sends the invalid requests by the Go client, and checks their errors, and that none is charged.
func TestErrorVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	url := serve(t, v)
	c, err := client.New(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, e := range v.Errors {
		var out json.RawMessage
		err := c.Call(t.Context(), http.MethodPost, "/v1/"+e.Verb, e.In, &out)
		p, ok := errors.AsType[*api.Problem](err)
		if !ok || p.Status != e.Want.Status || p.Type != e.Want.Type || p.Field != e.Want.Field ||
			errorClass(err) != e.Want.Error {
			t.Errorf("%s: got %s, %+v, %v, want %+v", e.Name, errorClass(err), p, err, e.Want)
		}
	}
	var page struct{ Cells []any }
	if err := c.Call(t.Context(), http.MethodGet, "/v1/cells", nil, &page); err != nil || len(page.Cells) > 0 {
		t.Errorf("got the cells %v, %v, want none", page.Cells, err)
	}
}

// TestAnswerVectors compares the errors that the Go client makes of the answers of the vectors.
func TestAnswerVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	url := serve(t, v)
	for i, a := range v.Answers {
		c, err := client.New(fmt.Sprintf("%s/test/answer/%d", url, i), nil)
		if err != nil {
			t.Fatal(err)
		}
		var out api.Settled
		err = c.Call(t.Context(), http.MethodPost, "/v1/settle", map[string]any{}, &out)
		if errorClass(err) != a.Error {
			t.Errorf("%s: got %s, %v, want %s", a.Name, errorClass(err), err, a.Error)
		}
		c.Close()
	}
}

// errorClass returns the name of an error's class in the vectors.
func errorClass(err error) string {
	for _, c := range []struct {
		name  string
		class error
	}{
		{"busy", store.ErrBusy},
		{"full", store.ErrFull},
		{"unavailable", store.ErrUnavailable}, // after busy and full, which are unavailable too
		{"unknown-outcome", store.ErrUnknownOutcome},
		{"id-reused", headgate.ErrReused},
		{"id-settled", headgate.ErrSettled},
		{"unknown-id", headgate.ErrUnknownID},
		{"invalid", headgate.ErrInvalid},
		{"unsupported", headgate.ErrUnsupported},
	} {
		if errors.Is(err, c.class) {
			return c.name
		}
	}
	// The Go client has one class, store.ErrSetup, for errors that only an operator can put right.
	switch p, ok := errors.AsType[*api.Problem](err); {
	case ok && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden):
		return "forbidden"
	case err != nil && strings.Contains(err.Error(), "is it a headgate server?"):
		return "other"
	}
	return "?"
}
