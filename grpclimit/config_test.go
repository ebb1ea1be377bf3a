package grpclimit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
)

func TestWrongParameters(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("sliding-log 5/1m")
	ok := grpclimit.Charge{Limit: limit, Key: grpclimit.ByPeer}
	with := func(change func(*grpclimit.Charge)) grpclimit.ServerConfig {
		c := ok
		change(&c)
		return grpclimit.ServerConfig{Charges: charges(ok, c)}
	}
	for field, cfg := range map[string]grpclimit.ServerConfig{
		"Charges:":     {},
		"Mode:":        {Charges: charges(ok), Mode: 3},
		"Limit: is":    with(func(c *grpclimit.Charge) { c.Limit = headgate.Limit{} }),
		"Limit: concu": with(func(c *grpclimit.Charge) { c.Limit = headgate.MustParse("concurrency 5 ttl 1m") }),
		"Key:":         with(func(c *grpclimit.Charge) { c.Key = nil }),
		"Keep:":        with(func(c *grpclimit.Charge) { c.Keep = headgate.Percent(100) }),
		"Methods:":     with(func(c *grpclimit.Charge) { c.Methods = []string{unary, "pkg.Service/Method"} }),
		`Methods: "/"`: with(func(c *grpclimit.Charge) { c.Methods = []string{"/"} }),
		`Methods: "/S`: with(func(c *grpclimit.Charge) { c.Methods = []string{"/Service"} }),
		"LimitFor:": with(func(c *grpclimit.Charge) {
			c.LimitFor = func(*grpclimit.Call) (headgate.Limit, error) { return limit, nil }
		}),
	} {
		if _, err := grpclimit.NewServer(l, cfg); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("%s %v", field, err)
		}
	}
	_, err := grpclimit.NewServer(nil, grpclimit.ServerConfig{Charges: charges(ok)})
	if !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("no limiter: %v", err)
	}
	for field, cfg := range map[string]*grpclimit.ClientConfig{
		"Methods:": {Methods: []string{""}},
	} {
		if c, err := grpclimit.NewClient(l, limit, cfg); !errors.Is(err, headgate.ErrInvalid) || c != nil ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("%s %v", field, err)
		}
	}
	if _, err := grpclimit.NewClient(l, headgate.Limit{}, nil); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("no limit: %v", err)
	}
	for name, make := range map[string]func(){
		"UnaryServer":  func() { grpclimit.UnaryServer(l, limit, nil) },
		"StreamServer": func() { grpclimit.StreamServer(l, headgate.Limit{}, grpclimit.ByPeer) },
		"UnaryClient":  func() { grpclimit.UnaryClient(nil, limit, nil) },
		"StreamClient": func() { grpclimit.StreamClient(l, headgate.Limit{}, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			make()
		}()
	}
}
