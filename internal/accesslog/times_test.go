package accesslog

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestTimeAndTimeFormatOfConfig checks times in the field of Config.Time and in the form of Config.TimeFormat.
func TestTimeAndTimeFormatOfConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		format      Format
		field, form string
		lines       []string
		want        string // description of the last line
	}{
		"journalctl -o json of systemd 252": {JSON, "", "", []string{
			`{"__CURSOR":"s=1;i=2","__REALTIME_TIMESTAMP":"1771929045123456","__MONOTONIC_TIMESTAMP":"99","_PID":"7","MESSAGE":"x"}`,
		}, "2026-02-24T10:30:45.123456Z"},
		"another field": {
			JSON, "meta.when", "", []string{`{"ts":1,"meta":{"when":1771929045}}`}, "2026-02-24T10:30:45Z",
		},
		"which is not there": {JSON, "when", "", []string{`{"ts":1}`}, errNoTime.Error()},
		"of calls":           {Usage, "at", "", []string{`{"ts":1,"at":2,"used":3}`}, "1970-01-01T00:00:02Z reserved 3 used 3"},
		"a form": {
			JSON, "", "%d.%m.%Y %H:%M:%S", []string{`{"ts":"24.02.2026 10:30:45,25"}`}, "2026-02-24T10:30:45.25Z",
		},
		"with a fraction": {
			JSON, "", "%d.%m.%Y %H:%M:%S.%f",
			[]string{`{"ts":"24.02.2026 10:30:45.123456"}`},
			"2026-02-24T10:30:45.123456Z",
		},
		"with a zone": {
			JSON, "", "%d/%b/%Y %I:%M %p %z", []string{`{"ts":"24/Feb/2026 10:30 PM +0200"}`}, "2026-02-24T20:30:00Z",
		},
		"of another form": {JSON, "", "%d.%m.%Y", []string{`{"ts":"2026-02-24"}`}, errBadTime.Error()},
		"before 1970":     {JSON, "", "%Y", []string{`{"ts":"1969"}`}, errBadTime.Error()},
		"a column": {
			CSV, "Zeit", "%d.%m.%Y %H:%M", []string{"time;Zeit", "1;24.02.2026 10:30"}, "2026-02-24T10:30:00Z",
		},
		"no such column": {CSV, "when", "", []string{"time;ip"}, errCSVHeader.Error()},
	} {
		rd, err := New(c.format, nil, Config{Time: c.field, TimeFormat: c.form})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, line := range c.lines {
			got = describe(rd.Read([]byte(line)))
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if strings.HasPrefix(c.want, "2") && c.format != Usage {
			log := []byte(strings.Join(c.lines, "\n"))
			if got, err := Detect(log, Config{Time: c.field, TimeFormat: c.form}); got != c.format || err != nil {
				t.Errorf("%s: Detect: got %q, error %v; want %q", name, got, err, c.format)
			}
		}
	}
	for name, cfg := range map[string]Config{
		"the format has none":  {Time: "ts"},
		"nor a form":           {TimeFormat: "%Y"},
		"an unknown directive": {TimeFormat: "%!"},
		"no text of a time":    {TimeFormat: "%s"},
	} {
		f := Combined
		if strings.Contains(cfg.TimeFormat, "%") && cfg.TimeFormat != "%Y" {
			f = JSON
		}
		if _, err := New(f, nil, cfg); !errors.Is(err, law.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}
