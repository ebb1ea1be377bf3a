package httplimit_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// TestWritersKeepTheirAbilities: a handler can do with its writer what it could without the middleware.
func TestWritersKeepTheirAbilities(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]*httplimit.Response{}
	h := must(t, memoryLimiter(), httplimit.HandlerConfig{
		RefundFailures: true,
		Failed: func(r *httplimit.Response) bool {
			mu.Lock()
			defer mu.Unlock()
			seen[r.Request.URL.Path] = r
			return false
		},
		Charges: []httplimit.Charge{{Limit: headgate.MustParse("fixed-window 50/1d from-first"), Key: httplimit.ByIP}},
	})
	flushed := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-flushed
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
		if _, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("copied")); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello\n")
		_ = rw.Flush()
	})
	done := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h(mux).ServeHTTP(w, r)
		done <- r.URL.Path
	}))
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	close(flushed) // the fields came first
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(text) != "copied" || err != nil || resp.Header.Get("RateLimit") == "" {
		t.Errorf("%q, %v, %v", text, err, resp.Header)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/hijack", nil)
	req.Header.Set("Connection", "upgrade")
	req.Header.Set("Upgrade", "x")
	resp, err = server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols || line != "hello\n" || err != nil {
		t.Errorf("%d %q, %v", resp.StatusCode, line, err)
	}
	<-done
	<-done
	mu.Lock()
	defer mu.Unlock()
	if r := seen["/flush"]; r == nil || r.Status != 200 || r.Written != 6 {
		t.Errorf("%+v", r)
	}
	if r := seen["/hijack"]; r == nil || r.Status != 101 {
		t.Errorf("%+v", r)
	}
}
