package replay_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/replay"
)

func page(t *testing.T, notation, field, log string) string {
	t.Helper()
	r, err := replay.Run(t.Context(), headgate.MustParse(notation), field, []string{write(t, "a.log", []byte(log))},
		&replay.Config{Pictures: true})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageEscapesTheLog(t *testing.T) {
	t.Parallel()
	evil := `</title></script><script>alert(1)</script><img/src=x onerror=alert(2)>`
	log := `{"ts":1,"who":"` + evil + `"}` + "\n" + `{"ts":1,"who":"` + evil + `"}` + "\n" + evil + "\n"
	got := page(t, "token-bucket 1/1m burst 1", "who", log)
	if strings.Contains(got, "<img") || strings.Count(got, "<script") != 1 {
		t.Errorf("not escaped:\n%s", got)
	}
	if !strings.Contains(got, "&lt;img/src=x onerror=alert(2)&gt;") {
		t.Error("the key is not shown")
	}
	for _, outside := range []string{"http://", "https://", "@import", "url(", " src=x onerror=alert(2)>", " style="} {
		if strings.Contains(got, outside) {
			t.Errorf("the page contains %q", outside)
		}
	}
	if !strings.Contains(got, "default-src &#39;none&#39;") {
		t.Error("the page has no policy")
	}
}

// Every law draws a picture that is well formed, in its frame and bounded.
func TestPagesOfEveryLaw(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&log, "{\"ts\":%d.%d,\"ip\":\"10.0.0.%d\"}\n", 1431857103+i*i/9000, i%10, i%15)
	}
	for _, notation := range []string{
		"token-bucket 10/1m burst 5", "leaky-bucket 1.5/s capacity 3", "gcra 10/s burst 5", "fixed-window 100/1h",
		"fixed-window 10/1m from-first", "fixed-window 100/day Europe/Berlin", "interval 10/10s burst 30",
		"sliding-window 100/1m", "sliding-log 5/1m history 30d block 15m", "token-bucket 1000000/s",
	} {
		t.Run(notation, func(t *testing.T) {
			t.Parallel()
			got := page(t, notation, "ip", log.String())
			if len(got) > 1<<20 {
				t.Errorf("the page has %d bytes", len(got))
			}
			if !strings.Contains(got, headgate.MustParse(notation).Bound().String()) {
				t.Error("the bound is missing")
			}
			for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(got, -1) {
				d := xml.NewDecoder(strings.NewReader(svg))
				for {
					token, err := d.Token()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatalf("%v in %.300s", err, svg)
					}
					e, _ := token.(xml.StartElement)
					for _, a := range e.Attr {
						if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") ||
							(a.Name.Local == "width" || a.Name.Local == "height") && strings.HasPrefix(a.Value, "-") {
							t.Errorf("%s %s=%q", e.Name.Local, a.Name.Local, a.Value)
						}
					}
				}
			}
		})
	}
}

func TestPageOfAlmostNothing(t *testing.T) {
	t.Parallel()
	got := page(t, "token-bucket 10/1m burst 5", "ip", `{"ts":1,"ip":""}`)
	if !strings.Contains(got, "<svg") || strings.Contains(got, "NaN") {
		t.Errorf("got %s", got)
	}
}
