package httplimit_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// TestNewHandlerWarnsOfASharedLimit checks for which limits of two handlers the second one logs a warning.
func TestNewHandlerWarnsOfASharedLimit(t *testing.T) {
	t.Parallel()
	unnamed := headgate.MustParse("sliding-log 5/1m")
	for name, tt := range map[string]struct {
		first, second headgate.Limit
		twoLimiters   bool
		warns         bool
	}{
		"one notation":    {first: unnamed, second: unnamed, warns: true},
		"two notations":   {first: unnamed, second: headgate.MustParse("sliding-log 6/1m")},
		"one name":        {first: headgate.MustParseNamed("a", "5/1m"), second: headgate.MustParseNamed("a", "5/1m")},
		"a name and none": {first: headgate.MustParseNamed("a", "sliding-log 5/1m"), second: unnamed},
		"two limiters":    {first: unnamed, second: unnamed, twoLimiters: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			l := headgate.New(memory.New(nil), nil)
			for _, limit := range []headgate.Limit{tt.first, tt.second} {
				charge := httplimit.Charge{Limit: limit, Key: httplimit.ByIP}
				if _, err := httplimit.NewHandler(l, httplimit.HandlerConfig{
					Charges: []httplimit.Charge{charge, charge}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				}); err != nil {
					t.Fatal(err)
				}
				if tt.twoLimiters {
					l = headgate.New(memory.New(nil), nil)
				}
			}
			if warned := strings.Contains(log.String(), "two handlers"); warned != tt.warns {
				t.Errorf("got log %q, want a warning: %v", &log, tt.warns)
			}
		})
	}
}
