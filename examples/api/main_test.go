package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// service is the program's service in a test. Its clock stands still, unless the test advances now.
type service struct {
	*site
	http.Handler
	limiter *headgate.Limiter
	now     int64 // in microseconds
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{now: 1e15}
	s.limiter = headgate.New(memory.New(&memory.Config{Clock: func() int64 { return s.now }}), nil)
	model := newModel()
	var err error
	if s.site, s.Handler, err = newSite(s.limiter, model.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.model.CloseIdleConnections(); model.Close() })
	return s
}

// post sends a body, with headers that are given as pairs of names and values.
func (s *service) post(path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestFailedLoginsAreLimited(t *testing.T) {
	t.Parallel()
	s := newService(t)
	const validLogin, invalidLogin = "name=ada&password=lovelace", "name=Ada&password=guess"
	for i := range 20 {
		if w := s.post("/login", validLogin); w.Code != http.StatusOK {
			t.Fatalf("login %d: got %d, want 200", i, w.Code)
		}
	}
	for i := range 5 {
		if w := s.post("/login", invalidLogin, "X-Forwarded-For", fmt.Sprint("203.0.113.", i)); w.Code != 401 {
			t.Fatalf("guess %d: got %d, want 401", i, w.Code)
		}
	}
	if w := s.post("/login", validLogin); w.Code != 429 || w.Header().Get("Retry-After") != "900" {
		t.Errorf("after five guesses: got %d, %v, want 429 and 900 s", w.Code, w.Header())
	}
	if w := s.post("/login", "name=bob&password=guess"); w.Code != 401 {
		t.Errorf("another account: got %d, want 401", w.Code)
	}
	s.now += (15 * time.Minute).Microseconds()
	if w := s.post("/login", validLogin); w.Code != http.StatusOK {
		t.Errorf("15 minutes later: got %d, want 200", w.Code)
	}
}

func TestTokensByTier(t *testing.T) {
	t.Parallel()
	s := newService(t)
	usedTokens := func(key string) string {
		c := customers[key]
		status, err := s.limiter.Inspect(t.Context(), tokens[c.tier], c.name)
		if err != nil {
			t.Fatal(err)
		}
		return status.Used.String()
	}
	for _, tt := range []struct {
		key, question string
		wantCode      int
		wantUsed      string
	}{
		{"", "hello", 401, ""},
		{"free-key", strings.Repeat("x", 900), 200, "900"}, // more than the estimate of 100
		{"free-key", "crash", 502, "900"},
		{"free-key", "hello", 200, "905"}, // less than the estimate
		{"free-key", "hello", 429, "905"}, // the estimate does not fit
		{"gold-key", "hello", 200, "5"},
	} {
		w := s.post("/completions", tt.question, "Authorization", "Bearer "+tt.key)
		if w.Code != tt.wantCode || tt.key != "" && usedTokens(tt.key) != tt.wantUsed {
			t.Errorf("%.20v: got %d %s, %s used", tt, w.Code, w.Body, usedTokens(tt.key))
		}
	}
}

func TestAnOrderIsPlacedOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	statusCounts := map[int]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			w := s.post("/orders", "book", "Authorization", "Bearer free-key", "Order-Id", "1")
			mu.Lock()
			statusCounts[w.Code]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if statusCounts[201] != 1 || statusCounts[409] != 49 || len(s.orders) != 1 {
		t.Errorf("got %v, orders %v, want one 201 and 49 times 409", statusCounts, s.orders)
	}
	if w := s.post("/orders", "book", "Authorization", "Bearer gold-key", "Order-Id", "1"); w.Code != 201 {
		t.Errorf("an order of another customer: got %d, want 201", w.Code)
	}
}

// TestCommentHasTheNumberOfLines counts the lines of code in limits.go, whose comment states their number.
func TestCommentHasTheNumberOfLines(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("limits.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "\n)\n") // after the imports
	stated := regexp.MustCompile(`: (\d+) lines of code`).FindStringSubmatch(body)
	n := 0
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	if stated == nil || stated[1] != fmt.Sprint(n) {
		t.Errorf("got %d lines, want %v as in the comment", n, stated)
	}
}

// TestRunServes starts the program, and sends it a request.
func TestRunServes(t *testing.T) {
	t.Parallel()
	addr := fmt.Sprint("127.0.0.1:", dbtest.FreePort(t)) // no other program gets this port meanwhile
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, "memory:", addr) }()
	await.NoError(t, "an order", func() error {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/orders", strings.NewReader("book"))
		req.Header.Set("Authorization", "Bearer free-key")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			return errors.New(resp.Status)
		}
		return nil
	})
	stop()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("run: got %v, want no error", err)
	}
}
