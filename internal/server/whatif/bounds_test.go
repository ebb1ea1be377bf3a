package whatif_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/server/whatif"
	"github.com/headgate/headgate/internal/testing/await"
)

// TestConditionsAreBounded: large expressions and many conditions are refused, and only the beginning of a field is
// matched.
func TestConditionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{})
	many := url.Values{"key": {"ip"}}
	for range 17 {
		many.Add("where", "method=GET")
	}
	for name, v := range map[string]url.Values{
		"a long expression": {"key": {"ip"}, "where": {"path~[ab]{600}b"}}, "many conditions": many,
	} {
		if code, text := s.ask(t, http.MethodPost, "/v1/whatif", v, strings.NewReader("")); code != 400 ||
			!strings.Contains(text, `"field":"where"`) {
			t.Errorf("%s: status %d: %s", name, code, text)
		}
	}
	log := "time,ip,path\n2026-05-01T00:00:00Z,192.0.2.1," + strings.Repeat("a", 9000) + "b\n" +
		"2026-05-01T00:00:01Z,192.0.2.1,ab\n"
	if got := s.send(t, url.Values{"key": {"ip"}, "where": {"path~b$"}}, []byte(log)); got.Requests != 1 {
		t.Errorf("%d requests match at their ends, want 1", got.Requests)
	}
}

// TestFewWaitToBeRead: clients that send nothing do not keep others out.
func TestFewWaitToBeRead(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var busy atomic.Int64
	for range 40 {
		all.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/v1/whatif?key=ip", silent{ctx}).WithContext(ctx)
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			if w.Code == http.StatusServiceUnavailable {
				busy.Add(1)
			}
		})
	}
	await.Until(t, "that others are refused at once", func() bool { return busy.Load() >= 40-2-4 })
	if code, text := s.ask(t, http.MethodPost, "/v1/check", nil, strings.NewReader(`{"limit":"api","key":"k"}`)); code != 200 {
		t.Errorf("meanwhile others get status %d: %s", code, text)
	}
	cancel()
	all.Wait()
}

// silent is a body from which nothing comes.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}
