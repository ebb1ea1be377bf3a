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

// page is the site in a test, with a quick hash function whose calls are counted.
type page struct {
	http.Handler
	hashes int
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

func (p *page) try(address, name, password string) *httptest.ResponseRecorder {
	body := url.Values{"name": {name}, "password": {password}}.Encode()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = net.JoinHostPort(address, "4711")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func TestGuessingOneAccount(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		p := newPage(l)
		for i := range 100 {
			if w := p.try("192.0.2.1", "Alice", secret); w.Code != http.StatusOK {
				t.Fatalf("login %d: %d", i, w.Code)
			}
		}
		for i := range 5 {
			if w := p.try(fmt.Sprintf("192.0.2.%d", i), "alice", "guess"); w.Code != http.StatusUnauthorized {
				t.Fatalf("guess %d: %d", i, w.Code)
			}
		}
		w := p.try("192.0.2.99", "alice", secret)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "900" {
			t.Errorf("after five guesses: %d, Retry-After %s", w.Code, w.Header().Get("Retry-After"))
		}
		headgatetest.Advance(15 * time.Minute)
		if w := p.try("192.0.2.99", "alice", secret); w.Code != http.StatusOK {
			t.Errorf("15 minutes later: %d", w.Code)
		}
	})
}

func TestGuessingFromOneAddress(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		p := newPage(l)
		for i := range 20 {
			address := fmt.Sprintf("2001:db8::%x", i+1) // all in one /64
			if w := p.try(address, fmt.Sprint("user", i), "guess"); w.Code != http.StatusUnauthorized {
				t.Fatalf("guess %d: %d", i, w.Code)
			}
		}
		for address, want := range map[string]int{
			"2001:db8::ffff":  http.StatusTooManyRequests,
			"2001:db8:0:1::1": http.StatusOK,
		} {
			if w := p.try(address, "alice", secret); w.Code != want {
				t.Errorf("from %s: %d, want %d", address, w.Code, want)
			}
		}
	})
}

// TestAccountsCannotBeEnumerated: an attempt on an account that does not exist gets the same answer,
// after the same work, as an attempt on an existing account.
func TestAccountsCannotBeEnumerated(t *testing.T) {
	headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
		p := newPage(l)
		for i := range 7 {
			before := p.hashes
			known := p.try("192.0.2.1", "alice", "guess")
			between := p.hashes
			unknown := p.try("192.0.2.2", "mallory", "guess")
			if known.Code != unknown.Code || known.Body.String() != unknown.Body.String() ||
				fmt.Sprint(known.Header()) != fmt.Sprint(unknown.Header()) || between-before != p.hashes-between {
				t.Errorf("attempt %d: %d %s after %d hashes, and %d %s after %d", i,
					known.Code, known.Body, between-before, unknown.Code, unknown.Body, p.hashes-between)
			}
		}
	})
}

// TestTheProgramServes starts the program as it is.
func TestTheProgramServes(t *testing.T) {
	addr := fmt.Sprint("127.0.0.1:", dbtest.FreePort(t)) // that no other program gets meanwhile
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, "sqlite::memory:", addr) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
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
