package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/config"
)

func TestAFileIsReadWhole(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(`
store: postgres://localhost/app
http: ":9000"
allow_notations: true
limits:
  login: sliding-log 5/1m block 15m
  export:
    limit: fixed-window 3/day Europe/Berlin
    description: reports
`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Store != "postgres://localhost/app" || c.HTTP != ":9000" || !*c.AllowNotations || len(c.Limits) != 2 {
		t.Errorf("%+v", c)
	}
	if l := c.Limits[1]; l.Name() != "export" || l.String() != "fixed-window 3/day Europe/Berlin" || l.Description != "reports" {
		t.Errorf("%+v", l)
	}
	if c, err := config.Parse("c.yaml", nil); err != nil || len(c.Limits) != 0 {
		t.Errorf("an empty file: %+v, %v", c, err)
	}
}

func TestMistakesAreShownAtTheirPlace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, place, says string }{
		{"stor: x", "1:1", "stor: is not a field of config"},
		{"store: x\nstore: y", "2:1", "said twice"},
		{"limits:\n  login: token-bucket 0/s", "2:23", "amount"},
		{"limits:\n  login: \"token-bucket 0/s\"", "2:10", "amount"},
		{"limits:\n  Login: token-bucket 1/s", "2:3", "small letter"},
		{"limits:\n  login: token-bucket 1/s\n  login: token-bucket 2/s", "3:3", "said twice"},
		{"limits:\n  login: {limit: token-bucket 1/s, burst: 5}", "2:36", "burst: is not a field of limits.login"},
		{"limits:\n  login: {description: x}", "2:10", "empty"},
		{"limits:\n  login: [1]", "2:10", "one line"},
		{"limits: 5", "1:9", "mapping"},
		{"store: [a]", "1:8", "must be text"},
		{"allow_notations: maybe", "1:18", "true or false"},
		{"store: x\n\tlimits: y", "2:2", ""},
		{"limits:\n  a: 'x\n", "2:3", ""},
		{"- a", "1:1", "mapping"},
		{"store: x\n---\nstore: y", "", "second document"},
	} {
		_, err := config.Parse("c.yaml", []byte(tt.text))
		if err == nil || !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "c.yaml:"+tt.place) {
			t.Errorf("%q: got %v, want c.yaml:%s and %q", tt.text, err, tt.place, tt.says)
		}
	}
}

func TestTheNearestWordWins(t *testing.T) {
	t.Setenv("HEADGATE_TEST_WORD", "variable")
	for _, tt := range []struct{ flag, file, want string }{{"flag", "file", "flag"}, {"", "file", "variable"}} {
		if got := config.Settle(tt.flag, "HEADGATE_TEST_WORD", tt.file, "default"); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	t.Setenv("HEADGATE_TEST_WORD", "")
	if got := config.Settle("", "HEADGATE_TEST_WORD", "file", "default"); got != "file" {
		t.Errorf("got %s, want file", got)
	}
	if got := config.Settle("", "HEADGATE_TEST_WORD", "", "default"); got != "default" {
		t.Errorf("got %s, want default", got)
	}
}
