package replay_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/replay"
)

func renderPage(t *testing.T, notation, field, log string) string {
	t.Helper()
	r, err := run(t.Context(), headgate.MustParse(notation), field, []string{writeFile(t, "a.log", []byte(log))},
		&replay.Config{Pictures: true})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := replay.WriteAllHTML(&b, []*replay.Report{r}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageEscapesTheLog(t *testing.T) {
	t.Parallel()
	evil := `</title></script><script>alert(1)</script><img/src=x onerror=alert(2)>`
	log := `{"ts":1,"who":"` + evil + `"}` + "\n" + `{"ts":1,"who":"` + evil + `"}` + "\n" + evil + "\n"
	got := renderPage(t, "token-bucket 1/1m burst 1", "who", log)
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

// TestPagesOfEveryLaw checks that the pictures of every law are well-formed SVG without invalid numbers or sizes.
func TestPagesOfEveryLaw(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&log, "{\"ts\":%d.%d,\"ip\":\"10.0.0.%d\"}\n", 1431857103+i*i/560, i%10, i%15)
	}
	for _, notation := range []string{
		"token-bucket 10/1m burst 5", "leaky-bucket 1.5/s capacity 3", "gcra 10/s burst 5", "fixed-window 100/1h",
		"fixed-window 10/1m from-first", "fixed-window 100/day Europe/Berlin", "interval 10/10s burst 30",
		"sliding-window 100/1m", "sliding-log 5/1m history 30d block 15m", "token-bucket 1000000/s",
	} {
		t.Run(notation, func(t *testing.T) {
			t.Parallel()
			got := renderPage(t, notation, "ip", log.String())
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

func TestPageOfOneRequest(t *testing.T) {
	t.Parallel()
	got := renderPage(t, "token-bucket 10/1m burst 5", "ip", `{"ts":1,"ip":"192.0.2.1"}`)
	if !strings.Contains(got, "<svg") || strings.Contains(got, "NaN") {
		t.Errorf("got %s", got)
	}
}

// articleLog has the fills of the figure in the article about leaky buckets: capacity 3, a leak of 1.5 a second.
const articleLog = "time,job,n\n1,a,1\n1.7,a,2\n2,a,1\n2.3,a,2\n6,a,3\n"

// TestFigureOfTheArticle compares the detailed chart with the figure of the article. UPDATE_GOLDEN=1
// rewrites the golden file.
func TestFigureOfTheArticle(t *testing.T) {
	t.Parallel()
	r, err := run(t.Context(), headgate.MustParse("leaky-bucket 1.5/s capacity 3"), "job",
		[]string{writeFile(t, "fills.csv", []byte(articleLog))},
		&replay.Config{Config: accesslog.Config{Cost: "n"}, Pictures: true, Fill: true, Trace: 9})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"1.000 false ", "2.000 false ", "2.550 false ", "3.000 true 1.1", "3.000 true ",
	} {
		s := r.Steps[i]
		got := fmt.Sprintf("%.3f %t ", s.After, s.Brim)
		if over := s.Overflow.String(); over != "0" {
			got += over
		}
		if got != want {
			t.Errorf("fill %d: got %q, want %q", i+1, got, want)
		}
	}
	var b bytes.Buffer
	if err := replay.WriteAllHTML(&b, []*replay.Report{r}); err != nil {
		t.Fatal(err)
	}
	svgs := regexp.MustCompile(`(?s)<svg class="wide".*?</svg>`).FindAllString(b.String(), -1)
	got := svgs[len(svgs)-1] + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile("testdata/article.svg", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/article.svg")
	if err != nil || got != string(want) {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
	// What the golden file has to say, to three digits.
	for _, title := range []string{
		"00:00:01 UTC: fitted, level 1", "00:00:01.7 UTC: fitted, level 2", "00:00:02 UTC: fitted, level 2.55",
		"00:00:02.3 UTC: at the brim, 1.1 overflowed, level 3", "00:00:06 UTC: at the brim, level 3",
	} {
		if !strings.Contains(got, "1970-01-01 "+title+"</title>") {
			t.Errorf("the figure does not say %q", title)
		}
	}
}

// TestRefusalsAreDrawnAboveThePlot checks that refusals are drawn above the plot, side by side: they cover neither the
// level nor the name of the capacity.
func TestRefusalsAreDrawnAboveThePlot(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 144 {
		fmt.Fprintf(&log, "{\"ts\":%d.%d,\"ip\":\"192.0.2.1\"}\n", 1431857103+i/10, i%10)
	}
	got := renderPage(t, "token-bucket 10/1m burst 5", "ip", log.String())
	const n = `="([0-9.]+)"`
	rect := regexp.MustCompile(`<rect class="refused" x` + n + ` y` + n + ` width` + n + ` height` + n + `>`)
	svgs := regexp.MustCompile(`(?s)<svg class="(?:wide|narrow)".*?</svg>`).FindAllString(got, -1)
	if len(svgs) != 6 {
		t.Fatalf("got %d charts, want 6", len(svgs))
	}
	for i, svg := range svgs[2:] { // charts of the level
		bars := rect.FindAllStringSubmatch(svg, -1)
		if len(bars) == 0 {
			t.Errorf("chart %d shows no refusals", i)
		}
		end := 0.0
		for _, m := range bars {
			var x, y, w, h float64
			if _, err := fmt.Sscan(strings.Join(m[1:], " "), &x, &y, &w, &h); err != nil {
				t.Fatal(err)
			}
			if y < 0 || y+h > 36 || x < end { // the plot begins at 36
				t.Errorf("chart %d: a refusal is at %v, %v to %v, %v; the one before ends at %v", i, x, y, x+w, y+h, end)
			}
			end = x + w
		}
	}
}

// TestHourlyRequestsAreShownInHours checks that buckets are whole hours if requests come each hour at the same minute,
// even if only by day, and that requests of a few hours, or of all minutes, keep shorter buckets.
func TestHourlyRequestsAreShownInHours(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stepSeconds, steps int
		hasRequest         func(step int) bool
		want               time.Duration
	}{
		"each hour":   {3600, 83, func(int) bool { return true }, time.Hour},
		"by day":      {3600, 83, func(hour int) bool { return hour%24 > 8 }, time.Hour},
		"all minutes": {60, 60 * 83, func(int) bool { return true }, 30 * time.Minute},
		"a few hours": {3600, 5, func(int) bool { return true }, 10 * time.Minute},
	} {
		var log strings.Builder
		for i := range c.steps {
			if c.hasRequest(i) {
				fmt.Fprintf(&log, "{\"ts\":%d,\"ip\":\"192.0.2.1\"}\n", 1431856800+c.stepSeconds*i+303)
			}
		}
		r, err := run(t.Context(), bucket, "ip", []string{writeFile(t, "a.json", []byte(log.String()))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, b := range r.Buckets {
			sum += b.Allowed + b.Denied
		}
		if r.Width.Duration != c.want || sum != r.Requests || r.Allowed+r.Denied != sum {
			t.Errorf("%s: got buckets of %s with %d requests, want %s, %d", name, r.Width, sum, c.want, r.Requests)
		}
	}
}

func TestPageComparesLimits(t *testing.T) {
	t.Parallel()
	limits := []headgate.Limit{
		headgate.MustParse("token-bucket 10/1m burst 5"), headgate.MustParse("sliding-log 10/1m"),
	}
	reports, err := replay.Compare(t.Context(), limits, "ip", []string{"testdata/apache.log.gz"},
		&replay.Config{Pictures: true})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := replay.WriteAllHTML(&b, reports); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<h1>2 limits compared</h1>", "<td>token-bucket 10/1m burst 5</td><td>8,605</td><td>1,395</td><td>13.9 %</td>",
		"<tr><td>130.237.218.86</td><td>357</td><td>256</td><td>284</td></tr>", "<summary>sliding-log 10/1m ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if b.Len() > 1<<20 {
		t.Errorf("got %d bytes, want at most %d", b.Len(), 1<<20)
	}
}
