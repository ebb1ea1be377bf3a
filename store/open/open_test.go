package open_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/open"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func ExampleLimiter() {
	os.Setenv("HEADGATE_STORE", "memory:") // or postgres://localhost/app
	ctx := context.Background()
	limiter, s, err := open.Limiter(ctx, os.Getenv("HEADGATE_STORE"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	login := headgate.MustParseNamed("login", "token-bucket 5/1m")
	d, err := limiter.AllowN(ctx, login, "alice", 3)
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 2 <nil>
}

// TestStoreFindsEarlierCharges checks that a second limiter over the same file finds the charges of the first one.
func TestStoreFindsEarlierCharges(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.ToSlash(filepath.Join(t.TempDir(), "headgate.db"))
	limit := headgate.MustParseNamed("l", "token-bucket 5/1h")
	l, s, err := open.Limiter(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := l.AllowN(t.Context(), limit, "k", 4); err != nil || d.Remaining != 1 {
		t.Errorf("got %+v, %v, want 1 remaining", d, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: got %v, want no error", err)
	}
	if _, err := l.Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: got %v, want ErrClosed", err)
	}
	if s, err = open.Store(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if d, err := headgate.New(s, nil).AllowN(t.Context(), limit, "k", 2); err != nil || d.Allowed {
		t.Errorf("got %+v, %v; want a refusal", d, err)
	}
}

// TestLimiterRejectsInvalidURLs checks that errors name the mistake, without the password.
func TestLimiterRejectsInvalidURLs(t *testing.T) {
	t.Parallel()
	for url, wantText := range map[string]string{
		"":                               "has no scheme",
		"mongodb://bob:secret@host/db":   `"mongodb" is not known; known are mariadb, memory, `,
		"memory:x":                       "memory: has no path",
		"postgres://bob:secret@[host/db": "postgres: URL: ",
	} {
		l, s, err := open.Limiter(t.Context(), url, nil)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), wantText) ||
			strings.Contains(err.Error(), "secret") || l != nil || s != nil {
			t.Errorf("%q: got %v, want ErrInvalid with %q", url, err, wantText)
		}
	}
}
