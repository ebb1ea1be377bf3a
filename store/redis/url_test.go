package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

func TestParseURL(t *testing.T) {
	for _, tt := range []struct {
		url      string
		hosts    []string
		user     string
		password string
		db       int
		prefix   string
		master   string
		tls      bool
	}{
		{url: "redis://", hosts: []string{"127.0.0.1:6379"}},
		{url: "redis://h", hosts: []string{"h:6379"}},
		{url: "redis://:s%40:x@h:1/3?prefix=p:", hosts: []string{"h:1"}, password: "s@:x", db: 3, prefix: "p:"},
		{url: "redis://u:p@a,b:2/?master=m", hosts: []string{"a:26379", "b:2"}, user: "u", password: "p", master: "m"},
		{url: "rediss://[::1]:7,[::2]", hosts: []string{"[::1]:7", "[::2]:6379"}, tls: true},
		{url: "redis://h?tls=true&insecure=true", hosts: []string{"h:6379"}, tls: true},
	} {
		o, prefix, err := parseURL(tt.url)
		if err != nil {
			t.Errorf("%s: got %v, want no error", tt.url, err)
			continue
		}
		if !slices.Equal(o.InitAddress, tt.hosts) || o.Username != tt.user || o.Password != tt.password ||
			o.SelectDB != tt.db ||
			prefix != tt.prefix || o.Sentinel.MasterSet != tt.master || (o.TLSConfig != nil) != tt.tls ||
			!o.DisableRetry {
			t.Errorf("%s: got %+v, prefix %q", tt.url, o, prefix)
		}
	}
	for raw, wantText := range map[string]string{
		"http://h":                       "redis://",
		"redis://h/x":                    "database",
		"redis://h/-1":                   "database",
		"redis://u:p%zz@h":               "password",
		"redis://h?timeout=1":            `"timeout"`,
		"redis://h?ca=x":                 "ca",
		"redis://h?tls=perhaps":          "tls",
		"redis://h?master=":              "master",
		"rediss://h?cert=x":              "cert",
		"redis://secret@h?prefix={x}":    "prefix",
		"redis://u:secret@h/?bad=%zz":    "option",
		"redis://h/?password=x&secret=":  "before the host",
		"redis://h/?Pwd=secret&secret=1": "before the host",
		"redis://u:secret@h:port:1/":     "host",
		"redis://u:secret@h:99999/":      "host",
		"redis://u:secret@h,,g/?prefix=": "host",
	} {
		_, err := Open(context.Background(), raw, nil)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(fmt.Sprint(err), wantText) ||
			strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: got %v, want an ErrInvalid that names %s", raw, err, wantText)
		}
	}
}

func TestOpenWithoutServerIsErrUnavailable(t *testing.T) {
	for _, raw := range []string{
		"redis://127.0.0.1:1", "redis://127.0.0.1:1,127.0.0.1:2", "redis://127.0.0.1:1/?master=m",
	} {
		if _, err := Open(context.Background(), raw, nil); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", raw, err)
		}
	}
}

// TestABraceInAKeyNeverDecidesTheSlot checks also that cellOf reads the key back.
func TestABraceInAKeyNeverDecidesTheSlot(t *testing.T) {
	keys := []string{"", "a", "{a}", "}{", "%7B", "%257B", "}:", "{k:a}:b", "}{k:", "é%", ":", "acme/alice"}
	for name, slot := range map[string]func(string) string{
		"no tags": nil, "one tag": func(string) string { return "}{k:%:" }, "empty": func(string) string { return "" },
		"its own": func(key string) string { return key },
		"a part":  func(key string) string { return key[:len(key)/2] },
	} {
		s := &Store{cfg: Config{Prefix: "p:", Slot: slot}}
		for _, key := range keys {
			c := law.Cell{Limit: "l:{x}}{k:y}:z", Key: key}
			if got, ok := s.cellOf(s.cellKey(c)); !ok || got != c {
				t.Errorf("%s: %q: got %+v from %q, want %+v", name, key, got, s.cellKey(c), c)
			}
			tag := key
			if slot != nil {
				tag = slot(key)
			}
			// The hash tag by Redis' rule: from the first opening brace to the next closing one.
			for _, name := range []string{s.cellKey(c), s.logKey(c), s.registerKey(c), s.receiptKey(c, "}{id}")} {
				_, fromBrace, _ := strings.Cut(name, "{")
				if got, _, _ := strings.Cut(fromBrace, "}"); got != "k:"+escape.Replace(tag) {
					t.Errorf("%q: got the hash tag %q, want k: and the escaped %q", name, got, tag)
				}
			}
		}
	}
	for _, name := range []string{
		"p:c:{k:other}{k:alice}:l", "p:c:{k:alice}:l", "p:c:{k:acme}{k:acme}:l",
		"p:c:{k:acme}{k:alice}",
	} {
		s := &Store{cfg: Config{Prefix: "p:", Slot: func(string) string { return "acme" }}}
		if c, ok := s.cellOf(name); ok {
			t.Errorf("%q: got %+v, want no cell", name, c)
		}
	}
	if got, ok := (&Store{cfg: Config{Prefix: "p:"}}).cellOf("p:c:{k:acme}{k:alice}:l"); ok {
		t.Errorf("a name with a tag, in a store without tags: got %+v, want no cell", got)
	}
}

// TestRedisKeysAreStable checks the names of keys: the next release must find the keys that are in a server now.
func TestRedisKeysAreStable(t *testing.T) {
	c := law.Cell{Limit: "login", Key: "{alice}"}
	slot := func(string) string { return "acme" }
	for want, got := range map[string]string{
		"h:c:{k:%7Balice%7D}:login":         (&Store{cfg: Config{Prefix: "h:"}}).cellKey(c),
		"h:a:{k:%7Balice%7D}:5:login:1":     (&Store{cfg: Config{Prefix: "h:"}}).receiptKey(c, "1"),
		"h:r:{k:acme}{k:%7Balice%7D}:login": (&Store{cfg: Config{Prefix: "h:", Slot: slot}}).registerKey(c),
		"h:l:{k:acme}:login": (&Store{cfg: Config{Prefix: "h:", Slot: slot}}).logKey(
			law.Cell{Limit: "login", Key: "acme"}),
		"h:a:{k:acme}{k:alice}:5:login:{id}": (&Store{cfg: Config{Prefix: "h:", Slot: slot}}).receiptKey(
			law.Cell{Limit: "login", Key: "alice"}, "{id}"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNewWithBadArgumentsIsErrInvalid(t *testing.T) {
	withoutClient := New(nil, nil)
	if err := withoutClient.ready(t.Context()); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no client: got %v, want ErrInvalid", err)
	}
	if batches := withoutClient.Info().Batches; batches != 2 {
		t.Errorf("no client: got %d batches, want 2", batches)
	}
	if err := New(&hookClient{}, &Config{Prefix: "{x}"}).ready(t.Context()); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a prefix with braces: got %v, want ErrInvalid", err)
	}
}

func TestClassOfServerErrors(t *testing.T) {
	s := openTest(t, startServer(t).DSN, nil)
	for text, want := range map[string]error{
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                                                            store.ErrConflict,
		"CLUSTERDOWN The cluster is down":                                                                                                                    store.ErrUnavailable,
		"LOADING Redis is loading the dataset in memory":                                                                                                     store.ErrUnavailable,
		"BUSY Redis is busy running a script.":                                                                                                               store.ErrUnavailable,
		"NOREPLICAS Not enough good replicas to write. script: 1, on @user_script:1.":                                                                        store.ErrUnavailable,
		"READONLY You can't write against a read only replica.":                                                                                              store.ErrReadOnly,
		"ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only replica.":                                     store.ErrReadOnly,
		"ERR Error running script (call to f_1): @user_script:9: Script killed by user with SCRIPT KILL...":                                                  store.ErrUnavailable,
		"ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed when used memory > 'maxmemory'.":                                   store.ErrFull,
		"OOM command not allowed when used memory > 'maxmemory'.":                                                                                            store.ErrFull,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                                                                   store.ErrReadOnly,
		"MISCONF Errors writing to the AOF file: No space left on device":                                                                                    store.ErrNoSpace,
		"ERR Error running script (call to f_1): @user_script:1: -MISCONF Errors writing to the AOF file: No space left on device":                           store.ErrNoSpace,
		"MISCONF Redis is configured to save RDB snapshots":                                                                                                  store.ErrReadOnly,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                                                   store.ErrSetup,
		"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand script": store.ErrSetup,
		"NOAUTH Authentication required.":                                                                                                                    store.ErrSetup,
		// a script that failed may have written before
		"ERR something new": store.ErrUnknownOutcome,
	} {
		code, message, _ := strings.Cut(text, " ")
		err := s.client.Do(context.Background(),
			s.client.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(
				code+" "+message).Build()).Error()
		if _, ok := rueidis.IsRedisErr(err); !ok {
			t.Fatalf("%v is not the server's error", err)
		}
		if got := class(err); !errors.Is(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		if wrapped := classify("test", err); !errors.Is(wrapped, want) {
			t.Errorf("%s: got %v, want %v", text, wrapped, want)
		}
	}
}
