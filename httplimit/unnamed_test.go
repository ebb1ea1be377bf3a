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

// TestHandlersThatShareALimitUnnoticed: the second handler of one notation warns, unless the limits have names, or
// belong to limiters of their own.
func TestHandlersThatShareALimitUnnoticed(t *testing.T) {
	t.Parallel()
	bare := headgate.MustParse("sliding-log 5/1m")
	for name, tt := range map[string]struct {
		first, second headgate.Limit
		apart         bool // two limiters
		warns         bool
	}{
		"one notation":    {first: bare, second: bare, warns: true},
		"two notations":   {first: bare, second: headgate.MustParse("sliding-log 6/1m")},
		"one name":        {first: headgate.MustParseNamed("a", "5/1m"), second: headgate.MustParseNamed("a", "5/1m")},
		"a name and none": {first: headgate.MustParseNamed("a", "sliding-log 5/1m"), second: bare},
		"two limiters":    {first: bare, second: bare, apart: true},
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
				if tt.apart {
					l = headgate.New(memory.New(nil), nil)
				}
			}
			if warned := strings.Contains(log.String(), "two handlers"); warned != tt.warns {
				t.Errorf("it says: %s", &log)
			}
		})
	}
}
