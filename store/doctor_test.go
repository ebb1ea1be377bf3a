package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

func TestClockFindings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		skew time.Duration
		want store.Severity
	}{
		{0, store.Fine},
		{time.Second, store.Fine},
		{-time.Second, store.Fine},
		{4 * time.Second, store.Note},
		{-4 * time.Second, store.Note},
		{24 * time.Hour, store.Note},
	} {
		var f store.Findings
		err := f.Clock("the clock", func() (int64, error) { return time.Now().Add(tt.skew).UnixMicro(), nil })
		if err != nil || len(f) != 1 || f[0].Check != "clock" || f[0].Severity != tt.want {
			t.Errorf("skew %v: got %+v, %v; want severity %v", tt.skew, f, err, tt.want)
		}
	}
	errAway := errors.New("away")
	var f store.Findings
	if err := f.Clock("the clock", func() (int64, error) { return 0, errAway }); !errors.Is(err, errAway) || f != nil {
		t.Errorf("got %+v, %v; want no finding and the error", f, err)
	}
}

func TestSchemaFindings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err    error
		older  bool
		want   store.Finding
		usable bool
	}{
		{nil, false, store.Finding{Severity: store.Fine, Found: "revision 7"}, true},
		{nil, true, store.Finding{
			Severity: store.Note, Found: "the functions and procedures are older than this binary",
			Remedy: "run headgate migrate",
		}, true},
		{store.ErrSetup, false, store.Finding{
			Severity: store.Wrong, Found: store.ErrSetup.Error(), Remedy: "run headgate migrate",
		}, false},
		{fmt.Errorf("made by 9: %w", store.ErrSchemaNewer), false, store.Finding{
			Severity: store.Wrong, Found: "made by 9: " + store.ErrSchemaNewer.Error(),
			Remedy: "use the newer binary of headgate here too",
		}, false},
	} {
		tt.want.Check = "schema"
		var f store.Findings
		if usable := f.Schema(tt.err, tt.older, "revision 7"); usable != tt.usable || len(f) != 1 || f[0] != tt.want {
			t.Errorf("%v, older %t: got %+v, %t; want %+v, %t", tt.err, tt.older, f, usable, tt.want, tt.usable)
		}
	}
}
