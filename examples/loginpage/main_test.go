package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const secret = "correct horse battery staple"

// page is the site in a test. Its hash function is quick, and counts its calls.
type page struct {
	http.Handler
	hashes int // number of calls of the hash function
}

func newPage(l *headgate.Limiter) *page {
	p := &page{}
	var err error
	p.Handler, err = newSite(l, func(password string, salt []byte) []byte {
		p.hashes++
		return bytes.Join([][]byte{[]byte(password), salt}, []byte("|"))
	})
	if err != nil {
		panic(err)
	}
	return p
}

// logIn sends the form from an address.
func (p *page) logIn(address, name, password string) *httptest.ResponseRecorder {
	body := url.Values{"name": {name}, "password": {password}}.Encode()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = net.JoinHostPort(address, "4711")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func TestFailuresByAccountAreLimited(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		p := newPage(l)
		for i := range 100 {
			if w := p.logIn("192.0.2.1", "Alice", secret); w.Code != http.StatusOK {
				t.Fatalf("login %d: got %d, want 200", i, w.Code)
			}
		}
		for i := range 5 {
			if w := p.logIn(fmt.Sprintf("192.0.2.%d", i), "alice", "guess"); w.Code != http.StatusUnauthorized {
				t.Fatalf("guess %d: got %d, want 401", i, w.Code)
			}
		}
		w := p.logIn("192.0.2.99", "alice", secret)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "900" {
			t.Errorf("after five guesses: got %d, Retry-After %s, want 429, 900", w.Code, w.Header().Get("Retry-After"))
		}
		headgatetest.Advance(15 * time.Minute)
		if w := p.logIn("192.0.2.99", "alice", secret); w.Code != http.StatusOK {
			t.Errorf("15 minutes later: got %d, want 200", w.Code)
		}
	})
}

func TestFailuresByAddressAreLimited(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		p := newPage(l)
		for i := range 20 {
			address := fmt.Sprintf("2001:db8::%x", i+1) // all in one /64
			if w := p.logIn(address, fmt.Sprint("user", i), "guess"); w.Code != http.StatusUnauthorized {
				t.Fatalf("guess %d: got %d, want 401", i, w.Code)
			}
		}
		for address, want := range map[string]int{
			"2001:db8::ffff":  http.StatusTooManyRequests,
			"2001:db8:0:1::1": http.StatusOK,
		} {
			if w := p.logIn(address, "alice", secret); w.Code != want {
				t.Errorf("from %s: got %d, want %d", address, w.Code, want)
			}
		}
	})
}

// TestAccountsCannotBeEnumerated checks that attempts on an account that exists and on one that does not get the same
// answer, after the same work.
func TestAccountsCannotBeEnumerated(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		p := newPage(l)
		for i := range 7 {
			hashesBefore := p.hashes
			alice := p.logIn("192.0.2.1", "alice", "guess")
			aliceHashes := p.hashes - hashesBefore
			mallory := p.logIn("192.0.2.2", "mallory", "guess")
			malloryHashes := p.hashes - hashesBefore - aliceHashes
			if alice.Code != mallory.Code || alice.Body.String() != mallory.Body.String() ||
				fmt.Sprint(alice.Header()) != fmt.Sprint(mallory.Header()) || aliceHashes != malloryHashes {
				t.Errorf("attempt %d: got %d %s after %d hashes, and %d %s after %d, want equal answers", i,
					alice.Code, alice.Body, aliceHashes, mallory.Code, mallory.Body, malloryHashes)
			}
		}
	})
}

// TestRunServes starts the program, and sends it a request.
func TestRunServes(t *testing.T) {
	addr := fmt.Sprint("127.0.0.1:", dbtest.FreePort(t)) // no other test takes this port meanwhile
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, "sqlite::memory:", addr) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: got %v, want no error", err)
		}
	}()
	await.NoError(t, "a login", func() error {
		resp, err := http.PostForm("http://"+addr+"/", url.Values{"name": {"alice"}, "password": {secret}})
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "Welcome!\n" {
			return fmt.Errorf("%s: %q, %w", resp.Status, body, err)
		}
		return nil
	})
}
