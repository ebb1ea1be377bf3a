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

// TestConditionsAreBounded checks that large expressions and many conditions are refused, and that only the beginning
// of a field is matched.
func TestConditionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{})
	manyConditions := url.Values{"key": {"ip"}}
	for range 17 {
		manyConditions.Add("where", "method=GET")
	}
	for name, v := range map[string]url.Values{
		"a long expression": {"key": {"ip"}, "where": {"path~[ab]{600}b"}}, "many conditions": manyConditions,
	} {
		if code, text := s.call(t, http.MethodPost, "/v1/whatif", v, strings.NewReader("")); code != 400 ||
			!strings.Contains(text, `"field":"where"`) {
			t.Errorf("%s: status %d: %s", name, code, text)
		}
	}
	log := "time,ip,path\n2026-05-01T00:00:00Z,192.0.2.1," + strings.Repeat("a", 9000) + "b\n" +
		"2026-05-01T00:00:01Z,192.0.2.1,ab\n"
	if got := s.upload(t, url.Values{"key": {"ip"}, "where": {"path~b$"}}, []byte(log)); got.Requests != 1 {
		t.Errorf("%d requests match, want 1: a path of 9001 bytes is cut before its end", got.Requests)
	}
}

// TestUploadsThatSendNothingKeepNobodyOut checks that all but 6 of 40 silent uploads get 503, and others are served.
func TestUploadsThatSendNothingKeepNobodyOut(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var busy atomic.Int64
	for range 40 {
		wg.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/v1/whatif?key=ip", silentBody{ctx}).WithContext(ctx)
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			if w.Code == http.StatusServiceUnavailable {
				busy.Add(1)
			}
		})
	}
	const refused = 40 - 2 - 4 // 40 uploads less 2 that are read and 4 that wait
	await.Until(t, "the other uploads to be refused", func() bool { return busy.Load() >= refused })
	if code, text := s.call(t, http.MethodPost, "/v1/check", nil, strings.NewReader(`{"limit":"api","key":"k"}`)); code != 200 {
		t.Errorf("another request: status %d, want 200: %s", code, text)
	}
	cancel()
	wg.Wait()
}

// silentBody is a body that sends nothing until ctx ends.
type silentBody struct{ ctx context.Context }

func (b silentBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}
