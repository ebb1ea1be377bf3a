package grpclimit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
)

func TestNewServerAndNewClientErrors(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("sliding-log 5/1m")
	valid := grpclimit.Charge{Limit: limit, Key: grpclimit.ByPeer}
	withCharge := func(change func(*grpclimit.Charge)) grpclimit.ServerConfig {
		c := valid
		change(&c)
		return grpclimit.ServerConfig{Charges: charges(valid, c)}
	}
	for field, cfg := range map[string]grpclimit.ServerConfig{
		"Charges:":     {},
		"Mode:":        {Charges: charges(valid), Mode: 3},
		"Limit: is":    withCharge(func(c *grpclimit.Charge) { c.Limit = headgate.Limit{} }),
		"Limit: concu": withCharge(func(c *grpclimit.Charge) { c.Limit = headgate.MustParse("concurrency 5 ttl 1m") }),
		"Key:":         withCharge(func(c *grpclimit.Charge) { c.Key = nil }),
		"Keep:":        withCharge(func(c *grpclimit.Charge) { c.Keep = headgate.Percent(100) }),
		"Methods:":     withCharge(func(c *grpclimit.Charge) { c.Methods = []string{unary, "pkg.Service/Method"} }),
		`Methods: "/"`: withCharge(func(c *grpclimit.Charge) { c.Methods = []string{"/"} }),
		`Methods: "/S`: withCharge(func(c *grpclimit.Charge) { c.Methods = []string{"/Service"} }),
		"LimitFor:": withCharge(func(c *grpclimit.Charge) {
			c.LimitFor = func(*grpclimit.Call) (headgate.Limit, error) { return limit, nil }
		}),
	} {
		if _, err := grpclimit.NewServer(l, cfg); !errors.Is(err, headgate.ErrInvalid) ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want an error of %s", err, field)
		}
	}
	_, err := grpclimit.NewServer(nil, grpclimit.ServerConfig{Charges: charges(valid)})
	if !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without a limiter: got %v, want %v", err, headgate.ErrInvalid)
	}
	for field, cfg := range map[string]*grpclimit.ClientConfig{
		"Methods:": {Methods: []string{""}},
	} {
		if c, err := grpclimit.NewClient(l, limit, cfg); !errors.Is(err, headgate.ErrInvalid) || c != nil ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want an error of %s", err, field)
		}
	}
	if _, err := grpclimit.NewClient(l, headgate.Limit{}, nil); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without a limit: got %v, want %v", err, headgate.ErrInvalid)
	}
	for name, create := range map[string]func(){
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
			create()
		}()
	}
}
