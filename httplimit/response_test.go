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

// TestResponseWritersKeepTheirInterfaces checks that a handler can flush, set deadlines, copy and hijack.
func TestResponseWritersKeepTheirInterfaces(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	responses := map[string]*httplimit.Response{} // by path; guarded by mu
	h := mustHandler(t, memoryLimiter(), httplimit.HandlerConfig{
		RefundFailures: true,
		Failed: func(r *httplimit.Response) bool {
			mu.Lock()
			defer mu.Unlock()
			responses[r.Request.URL.Path] = r
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
	done := make(chan string, 2) // paths
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h(mux).ServeHTTP(w, r)
		done <- r.URL.Path
	}))
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	close(flushed) // the header came before the end of the handler
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(text) != "copied" || err != nil || resp.Header.Get("RateLimit") == "" {
		t.Errorf("/flush: got %q, %v, %v; want copied", text, err, resp.Header)
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
		t.Errorf("/hijack: got %d %q, %v; want 101 hello", resp.StatusCode, line, err)
	}
	<-done
	<-done
	mu.Lock()
	defer mu.Unlock()
	if r := responses["/flush"]; r == nil || r.Status != 200 || r.Written != 6 {
		t.Errorf("/flush: got %+v, want 200 and 6 bytes", r)
	}
	if r := responses["/hijack"]; r == nil || r.Status != 101 {
		t.Errorf("/hijack: got %+v, want 101", r)
	}
}
