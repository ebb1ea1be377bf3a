package config_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestAFileIsReadWhole(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(`
store: postgres://localhost/app
http: ":9000"
wait_store: 30s
host: [a, b]
max_requests: 10
allow_notations: true
limits:
  login: sliding-log 5/1m block 15m
  export:
    limit: fixed-window 3/day Europe/Berlin
    description: reports
  signin: {limit: 7/1h, renamed_from: logon}
`))
	if err != nil {
		t.Fatal(err)
	}
	if !*c.AllowNotations || len(c.Limits) != 3 {
		t.Errorf("got %+v, want notations and 3 limits", c)
	}
	for s, want := range map[config.Setting]string{
		config.Store: "postgres://localhost/app", config.HTTP: ":9000",
		config.WaitStore: "30s", config.Host: "a,b", config.MaxRequests: "10",
	} {
		if got, err := c.Get(s, noFlags); err != nil || got != (config.SettingValue{Value: want, By: "c.yaml"}) {
			t.Errorf("%s: got %+v, %v, want %s", s.Name, got, err, want)
		}
	}
	if l := c.Limits[1]; l.Name() != "export" || l.String() != "fixed-window 3/day Europe/Berlin" ||
		l.Description != "reports" {
		t.Errorf("got %+v, want export with its description", l)
	}
	for _, name := range []string{"logon", "signin"} {
		if l, err := c.Limit(name); err != nil || l.Name() != "logon" || c.Limits[2].RenamedTo != "signin" {
			t.Errorf("%s: got %s, %v; want logon, which was renamed to signin", name, l.Name(), err)
		}
	}
	if c, err := config.Parse("c.yaml", nil); err != nil || len(c.Limits) != 0 {
		t.Errorf("an empty file: got %+v, %v, want no limits", c, err)
	}
}

func TestMistakesAreShownAtTheirPlace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, place, wantErr string }{
		{"stor: x", "1:1", "stor: the key is not known here; known are admin, allow,"},
		{"store: x\nstore: y", "2:1", "said twice"},
		{"limits:\n  login: token-bucket 0/s", "2:23", "amount"},
		{"limits:\n  login: \"token-bucket 0/s\"", "2:10", "amount"},
		{"limits:\n  Login: token-bucket 1/s", "2:3", "small letter"},
		{"limits:\n  login: token-bucket 1/s\n  login: token-bucket 2/s", "3:3", "said twice"},
		{"limits:\n  login: {limit: token-bucket 1/s, burst: 5}", "2:36", "limits.login.burst: the key is not known here; known are description, limit"},
		{"limits:\n  login: {description: x}", "2:10", "empty"},
		{"limits:\n  login: [1]", "2:10", "one line"},
		{"limits: 5", "1:9", "mapping"},
		{"limits:\n  a: {limit: 1/s, renamed_from: B}", "2:14", "small letter"},
		{"limits:\n  a: {limit: 1/s, renamed_from: b}\n  b: 1/s", "3:6", "is the limit b, which is there too"},
		{"limits:\n  b: 1/s\n  a: {limit: 1/s, renamed_from: b}", "3:6", "is the limit b, which is there too"},
		{"store: [a]", "1:8", "must be text"},
		{"store: ''", "1:8", "store: is empty"},
		{"postgres://u:S3cret@h/db: x", "1:1", "postgres://h/db: the key is not known here"},
		{"S3c@ret: x", "1:1", "...: the key is not known here"},
		{"allow_notations: maybe", "1:18", "true or false"},
		{"store: x\n\tlimits: y", "2:2", ""},
		{"limits:\n  a: 'x\n", "2:3", ""},
		{"prices:\n  gpt-5: {input: 1}", "2:10", "needs input and output"},
		{"prices:\n  gpt-5: {input: 1, output: -2}", "2:29", "negative"},
		{"prices:\n  gpt-5: {input: 1, output: 2, input_cached: 3}", "2:32", "known are cache_write, cached_input"},
		{"prices:\n  gpt-5: 3", "2:10", "mapping"},
		{"- a", "1:1", "mapping"},
		{"store: x\n---\nstore: y", "", "second document"},
	} {
		_, err := config.Parse("c.yaml", []byte(tt.text))
		if err == nil || !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.wantErr) ||
			!strings.Contains(err.Error(), "c.yaml:"+tt.place) {
			t.Errorf("%q: got %v, want c.yaml:%s and %q", tt.text, err, tt.place, tt.wantErr)
		}
	}
}

// noFlags is a command line without flags.
func noFlags(string) (string, bool) { return "", false }

// oneFlag returns a command line with one flag.
func oneFlag(name, value string) config.Flags {
	return func(n string) (string, bool) { return value, n == name }
}

func TestFlagsTakePrecedenceOverVariablesAndFiles(t *testing.T) {
	c, err := config.Parse("c.yaml", []byte("wait_store: 3s"))
	if err != nil {
		t.Fatal(err)
	}
	empty := &config.Config{}
	const defaultWait = time.Minute
	for _, tt := range []struct {
		c        *config.Config
		flags    config.Flags
		variable string
		want     time.Duration
	}{
		{c, oneFlag("wait-store", "1s"), "2s", time.Second},
		{c, noFlags, "2s", 2 * time.Second},
		{c, noFlags, "", 3 * time.Second},
		{empty, noFlags, "", defaultWait},
		{empty, oneFlag("wait-store", "0"), "", 0},
	} {
		if tt.variable != "" {
			t.Setenv("HEADGATE_WAIT_STORE", tt.variable)
		} else {
			os.Unsetenv("HEADGATE_WAIT_STORE")
		}
		r := tt.c.Reader(tt.flags)
		if got := r.Duration(config.WaitStore, defaultWait); r.Err != nil || got != tt.want {
			t.Errorf("got %s, %v; want %s", got, r.Err, tt.want)
		}
	}
}

// TestValuesOfSettings checks that empty settings are errors and not the default, and values of each type.
func TestValuesOfSettings(t *testing.T) {
	c := &config.Config{}
	for _, s := range config.Settings {
		if _, err := c.Get(s, oneFlag(s.Flag(), "")); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), "--"+s.Flag()+": is empty") {
			t.Errorf("--%s='': got %v, want that it is empty", s.Flag(), err)
		}
		t.Setenv(s.Variable(), "")
		if _, err := c.Get(s, noFlags); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), s.Variable()+": is empty") {
			t.Errorf("%s='': got %v, want that it is empty", s.Variable(), err)
		}
	}
	count := func(r *config.Reader, s config.Setting) int64 { return int64(r.Count(s)) }
	for _, tt := range []struct {
		setting        config.Setting
		read           func(*config.Reader, config.Setting) int64
		value, wantErr string
		want           int64
	}{
		{config.MaxConnections, count, "17", "", 17},
		{config.MaxConnections, count, "0", "not a number above 0", 0},
		{config.MaxConnections, count, "many", "not a number above 0", 0},
		{config.MaxBuffered, (*config.Reader).Size, "17", "", 17},
		{config.MaxBuffered, (*config.Reader).Size, "64MiB", "", 64 << 20},
		{config.MaxBuffered, (*config.Reader).Size, "2 GiB", "", 2 << 30},
		{config.MaxBuffered, (*config.Reader).Size, "64MB", "not a size", 0},
		{config.MaxBuffered, (*config.Reader).Size, "99999999999999999GiB", "not a size", 0},
		{config.MaxBuffered, (*config.Reader).Size, "-1KiB", "not a size", 0},
	} {
		os.Unsetenv(tt.setting.Variable())
		r := c.Reader(oneFlag(tt.setting.Flag(), tt.value))
		n := tt.read(r, tt.setting)
		if err := r.Err; n != tt.want || (err == nil) != (tt.wantErr == "") || err != nil &&
			!strings.Contains(err.Error(), "--"+tt.setting.Flag()+": ") ||
			!strings.Contains(fmt.Sprint(err), tt.wantErr) {
			t.Errorf("%s %s: got %d, %v, want %d, %q", tt.setting.Name, tt.value, n, err, tt.want, tt.wantErr)
		}
	}
	r := c.Reader(oneFlag("host", "a, b.example"))
	if names := r.Names(config.Host); r.Err != nil || !slices.Equal(names, []string{"a", "b.example"}) {
		t.Errorf("a list: got %q, %v, want a and b.example", names, r.Err)
	}
	r = c.Reader(oneFlag("host", "a,,b"))
	if r.Names(config.Host); !errors.Is(r.Err, headgate.ErrInvalid) {
		t.Errorf("a list with an empty name: got %v, want ErrInvalid", r.Err)
	}
	for _, text := range []string{"soon", "-1s", "5"} {
		r := c.Reader(oneFlag("wait-store", text))
		if r.Duration(config.WaitStore, 0); !errors.Is(r.Err, headgate.ErrInvalid) ||
			!strings.Contains(r.Err.Error(), "--wait-store: ") {
			t.Errorf("--wait-store=%s: got %v, want ErrInvalid", text, r.Err)
		}
	}
}

func TestNotationsAreBounded(t *testing.T) {
	c := &config.Config{}
	r := c.Reader(noFlags)
	c.NotationBounds = r.NotationBounds()
	if r.Err != nil || c.NotationBounds != config.DefaultNotationBounds {
		t.Fatalf("%+v, %v", c.NotationBounds, r.Err)
	}
	for notation, ok := range map[string]bool{
		"token-bucket 5/1m": true, "token-bucket 1/1d burst 32": true, "token-bucket 1/1d burst 33": false,
		"fixed-window 5/32d": true, "fixed-window 5/33d": false, "fixed-window 5/month": true,
		"fixed-window 1/3660d": false,
		"sliding-window 5/31d": true, "sliding-window 5/33d": false, "sliding-log 5/1m history 32d": true,
		"sliding-log 5/1m history 33d": false,
		"fixed-window 5/1m block 32d":  true, "fixed-window 5/1m block 33d": false, "concurrency 5 ttl 33d": false,
		"leaky-bucket 1/1d capacity 33": false, "interval 1/1d burst 33": false,
	} {
		_, err := c.Resolve(notation)
		switch {
		case (err == nil) != ok:
			t.Errorf("%s: %v", notation, err)
		case !ok && (!errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "notation_max_period") ||
			!strings.Contains(err.Error(), "limit: ")):
			t.Errorf("%s: %v", notation, err)
		}
	}
	// Limits of the file, and notations before the bounds are read, are not bounded.
	c, err := config.Parse("c.yaml", []byte(
		"allow_notations: true\nnotation_max_period: 1h\nmax_notations: 3\nlimits:\n  long: fixed-window 5/365d\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resolve("fixed-window 5/365d"); err != nil {
		t.Error(err)
	}
	r = c.Reader(noFlags)
	c.NotationBounds = r.NotationBounds()
	if r.Err != nil || c.NotationBounds != (config.NotationBounds{MaxPeriod: time.Hour, Max: 3}) {
		t.Errorf("got %+v, %v, want the bounds of the file", c.NotationBounds, r.Err)
	}
	for name, ok := range map[string]bool{"long": true, "token-bucket 5/1m": true, "token-bucket 5/1d": false} {
		if _, err := c.Limit(name); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for setting, value := range map[string]string{
		"notation-max-period": "soon", "max-notations": "many",
	} {
		r := c.Reader(oneFlag(setting, value))
		r.NotationBounds()
		if !errors.Is(r.Err, headgate.ErrInvalid) || !strings.Contains(r.Err.Error(), "--"+setting) {
			t.Errorf("--%s=%s: got %v, want ErrInvalid", setting, value, r.Err)
		}
	}
}

// TestRemovedSettings checks that the error about each removed setting says what to use instead.
func TestRemovedSettings(t *testing.T) {
	const instead = "memory:?max_keys=N"
	for _, text := range []string{
		"max_keys: 5\n", "notation_max_keys: 5\n", "limits:\n  few: {limit: token-bucket 5/1m, max_keys: 12}\n",
	} {
		if _, err := config.Parse("c.yaml", []byte(text)); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), instead) || !strings.Contains(err.Error(), "max_keys: was removed") {
			t.Errorf("%q: got %v, want that it was removed", text, err)
		}
	}
	t.Setenv("HEADGATE_MAX_KEYS", "5")
	if _, err := config.Load(oneFlag("store", "memory:")); !errors.Is(err, headgate.ErrInvalid) ||
		!strings.Contains(err.Error(), instead) || !strings.HasPrefix(err.Error(), "HEADGATE_MAX_KEYS: was removed") {
		t.Errorf("HEADGATE_MAX_KEYS: got %v, want that it was removed", err)
	}
}

// TestProxies checks the setting if it is unset, none, a list of networks, or wrong.
func TestProxies(t *testing.T) {
	t.Parallel()
	c := &config.Config{}
	proxies := func(flags config.Flags) (httpkey.Proxies, error) {
		r := c.Reader(flags)
		p := r.Proxies()
		return p, r.Err
	}
	if p, err := proxies(noFlags); p != nil || err != nil {
		t.Errorf("not set: got %v, %v, want nil", p, err)
	}
	if p, err := proxies(oneFlag("proxy", "none")); p == nil || len(p) != 0 || err != nil {
		t.Errorf("none: got %v, %v, want an empty list", p, err)
	}
	if p, err := proxies(oneFlag("proxy", "10.0.0.0/8, ::1")); len(p) != 2 || err != nil {
		t.Errorf("a list: got %v, %v, want 2 networks", p, err)
	}
	for _, text := range []string{"10.0.0.0/33", "localhost", "10.0.0.1,", "none,::1", ""} {
		if p, err := proxies(oneFlag("proxy", text)); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), "--proxy") {
			t.Errorf("%q: got %v, %v, want ErrInvalid", text, p, err)
		}
	}
}
