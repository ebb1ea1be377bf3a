package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestPasswordsAreNotShown checks that RedactURL, and the errors of ParseURL, contain no part of the password S3c..ret,
// whatever the URL.
func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ url, want string }{
		{"postgres://u:S3cret@h:5432/db", "postgres://h:5432/db"},
		{"postgres://h/db?user=u&password=S3cret", "postgres://h/db"},
		{"postgres://h/db?user=u&password=S3c@ret", "postgres:..."},
		{"postgres://h/db?sslpassword=S3cret&pooler=transaction", "postgres://h/db?pooler=transaction"},
		{"postgres:///db?host=/run/postgresql&user=u&password=S3cret", "postgres:///db?host=/run/postgresql"},
		{"postgres://u:S3cret@%2Frun%2Fpostgresql/db", "postgres://%2Frun%2Fpostgresql/db"},
		{"postgres://u:S3c@ret@h/db", "postgres://h/db"},
		{"postgres://u:S3c/ret@h/db", "postgres:..."},
		{"postgres://u:S3c?ret@h/db", "postgres:..."},
		{"postgres://u:S3c#ret@h/db", "postgres:..."},
		{"postgres://u:123/S3cret@h/db", "postgres:..."},
		{"postgres://u:S3c%zzret@h/db", "postgres:..."},
		{"postgres://u:S3c%40ret@h/db", "postgres://h/db"},
		{"postgres://u%3AS3cret%40h/db", "postgres:..."},
		{"postgres://u:S3cret", "postgres:..."},
		{"postgres:u:S3cret@h/db", "postgres:..."},
		{"postgres://h/db;password=S3cret", "postgres://h"},
		{"host=h port=5432 user=u password=S3cret", "..."},
		{"host=h:5432 user=u password=S3cret", "..."},
		{"user=u password='S3c ret' host=h", "..."},
		{"root:S3cret@tcp(127.0.0.1:3306)/app", "root:..."},
		{"mysql://root:S3cret@tcp(127.0.0.1:3306)/app", "mysql:..."},
		{"mysql://root:S3c@ret@a,b:3307/app", "mysql://a,b:3307/app"},
		{"mysql://h/app?password=S3cret", "mysql://h/app"},
		{"mysql://root:S3cret@[::1]:3306/", "mysql://[::1]:3306"},
		{"postgrse://h/db?password=S3cret", "postgrse://h/db"},
		{"redsi://:S3c@ret@h/0", "redsi://h/0"},
		{"redis://:S3c@ret@h/0", "redis://h/0"},
		{"redis://:S3c/ret@h/0", "redis:..."},
		{"redis://:S3c?ret@h/0", "redis:..."},
		{"redis://S3cret@h/0", "redis://h/0"},
		{"redis://h/0?prefix=app:&password=S3cret", "redis://h/0?prefix=app:"},
		{"redis://h/0?prefix=a&S3cret", "redis:..."},
		{"rediss://:S3cret@a,b:7/?master=m", "rediss://a,b:7?master=m"},
		{"https://hooks.example.com/services/T0/S3cret", "https://hooks.example.com"},
		{"jdbc:mysql://h/db?password=S3cret", "jdbc:..."},
		{"S3cret", "..."},
		{":S3cret@h", "..."},
		{"", "..."},
		{"memory:", "memory:"},
		{"memory:S3cret", "memory:..."},
		{"sqlite:headgate.db", "sqlite:headgate.db"},
		{"sqlite:/data/me@work/h.db?synchronous=normal", "sqlite:/data/me@work/h.db?synchronous=normal"},
		{"sqlite:/data/me:you@work/h.db?key=S3cret", "sqlite:/data/me:you@work/h.db"},
		{"sqlite::memory:", "sqlite::memory:"},
	} {
		if got := store.RedactURL(tt.url); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.url, got, tt.want)
		}
		if _, err := store.ParseURL(tt.url); err != nil {
			if !errors.Is(err, store.ErrInvalid) || strings.Contains(err.Error(), "S3c") ||
				strings.Contains(err.Error(), "ret") {
				t.Errorf("%s: got %v, want an ErrInvalid without any of the password", tt.url, err)
			}
		}
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	u, err := store.ParseURL("mysql://u%40x:S3c%2Fr:e@t@a:1,[::1]:2,c/d%20b?x=1&y=%26")
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme != "mysql" || u.User != "u@x" || u.Password != "S3c/r:e@t" ||
		!slices.Equal(u.Hosts, []string{"a:1", "[::1]:2", "c"}) ||
		u.Path != "d b" || u.Options.Get("x") != "1" || u.Options.Get("y") != "&" {
		t.Errorf("got %+v, want the parts unescaped", *u)
	}
	for _, badURL := range []string{
		"mysql:h", "mysql://h:port/", "mysql://h,,g/", "mysql://h/#x", "mysql://h?x",
		"mysql://h?x=%zz", "mysql://h/%zz", "my sql://h",
	} {
		if _, err := store.ParseURL(badURL); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", badURL, err)
		}
	}
}
