package page_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/server/auth"
)

// accessLog returns a log of 2,000 requests of about 250 addresses within about 13 hours.
func accessLog() string {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 4, 5000)
	var b strings.Builder
	now := time.Date(2026, 5, 17, 10, 5, 0, 0, time.UTC)
	for lines := 0; lines < 2000; {
		now = now.Add(time.Duration(rng.ExpFloat64() * float64(100*time.Second)))
		n := zipf.Uint64()
		for range min(1+int(rng.ExpFloat64()*4), 2000-lines) { // a page and its resources
			fmt.Fprintf(&b, "10.%d.%d.7 - - [%s] \"GET /page/%d HTTP/1.1\" 200 %d \"http://example.com/\" "+
				"\"Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0\"\n",
				n/250, n%250, now.Format("02/Jan/2006:15:04:05 -0700"), rng.IntN(300), rng.IntN(9000))
			now = now.Add(time.Second)
			lines++
		}
	}
	return b.String()
}

// drop drops a file on the page.
func (b *browser) drop(name, text string) {
	b.t.Helper()
	quotedName, _ := json.Marshal(name)
	quoted, _ := json.Marshal(text)
	eval[any](b, fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		data.items.add(new File([%s], %s));
		const to = document.querySelector(".drop");
		to.dispatchEvent(new DragEvent("dragover", { dataTransfer: data, bubbles: true, cancelable: true }));
		to.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
		return null;
	})()`, quoted, quotedName))
}

// figures is a script that returns the figures of the view: admitted requests, refused requests, refused keys.
const figures = `[...document.querySelectorAll(".trial .figures b")].map((e) => e.textContent.replaceAll(",", "")).join(" ")`

// slide moves a slider, and waits until the figures change.
func (b *browser) slide(id string, to int) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`new Promise((done) => {
		const box = document.querySelector(".trial .figures"), input = document.querySelector("#%s");
		const watch = new MutationObserver(() => {
			watch.disconnect();
			requestAnimationFrame(() => setTimeout(() => done(null)));
		});
		watch.observe(box, { childList: true, subtree: true });
		input.value = %d;
		input.dispatchEvent(new Event("input", { bubbles: true }));
	})`, id, to))
}

// selectOption selects the option with a value, as soon as there is one.
func (b *browser) selectOption(id, value string) {
	b.t.Helper()
	b.waitFor(id+" "+value, fmt.Sprintf(`[...(document.querySelector("#%s")?.options ?? [])].some((o) => o.value === %q)`, id, value))
	eval[any](b, fmt.Sprintf(`(() => { const e = document.querySelector("#%s"); e.value = %q; e.dispatchEvent(new Event("change", { bubbles: true })); return null; })()`,
		id, value))
}

// setField sets the value of a field, as if a user had typed it.
func (b *browser) setField(id, value string) {
	b.t.Helper()
	eval[any](b, fmt.Sprintf(`(() => { const e = document.querySelector("#%s"); e.value = %q; e.dispatchEvent(new Event("change", { bubbles: true })); return null; })()`,
		id, value))
}

// replayLog returns the report of package replay about a limit.
func replayLog(t *testing.T, log, key, limit string) *replay.Report {
	t.Helper()
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(name, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := headgate.Parse(limit)
	if err != nil {
		t.Fatal(err)
	}
	reports, err := replay.Compare(t.Context(), []headgate.Limit{l}, key, []string{name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return reports[0]
}

// TestWhatIf drops a log on the page and moves the sliders. It checks that the figures are those of package replay.
func TestWhatIf(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	log := accessLog()
	b := s.openTab(1280, 900, false)
	b.openView("whatif", "What if")
	b.drop("access.log", log)
	b.waitText("2,000 requests of")
	b.waitFor("the figures", figures+` !== ""`)
	expectFigures := func(limit string) {
		t.Helper()
		r := replayLog(t, log, "ip", limit)
		want := fmt.Sprintf("%d %d %d", r.Allowed, r.Denied, r.DeniedKeys)
		b.waitFor(limit+": "+want, figures+" === "+fmt.Sprintf("%q", want))
		if r.Denied > 0 {
			b.waitText(r.Top[0].Key)
		}
		if got := eval[string](b, `document.querySelector("#whatif-limit").value`); got != limit {
			t.Errorf("the limit is %q, not %q", got, limit)
		}
	}
	expectFigures("token-bucket 60/1m burst 30")

	for i := range 4 {
		b.slide("whatif-burst", i)
	}
	b.slide("whatif-burst", 4)
	b.slide("whatif-rate", 3)
	expectFigures("token-bucket 4/1m burst 5")
	b.selectOption("whatif-period", "1h")
	expectFigures("token-bucket 4/1h burst 5")
	b.selectOption("whatif-kind", "sliding-window")
	expectFigures("sliding-window 4/1h")
	b.setField("whatif-limit", "fixed-window 7/15m from-first")
	expectFigures("fixed-window 7/15m from-first")
	b.slide("whatif-rate", 0)
	expectFigures("fixed-window 1/15m from-first")
	b.selectOption("whatif-from", "token-bucket 1/1h burst 10")
	expectFigures("token-bucket 1/1h burst 10")

	b.pressButton(".trial", "Compare with this")
	b.slide("whatif-burst", 12)
	b.waitText("was " + fmt.Sprint(comma(replayLog(t, log, "ip", "token-bucket 1/1h burst 10").Denied)))
	b.waitText("Compared with token-bucket 1/1h burst 10")
	b.pressButton(".trial", "Stop")
	b.waitFor("no comparison", `!document.querySelector(".trial .was")`)
	b.pressButton(".trial", "Copy the limit")
	b.waitFor("it is copied, or selected", `document.querySelector(".note")`)

	// Suggestions.
	b.selectOption("whatif-refuse", "1%")
	b.selectOption("whatif-of", "keys")
	b.waitFor("suggestions", `document.querySelectorAll(".choices button").length === 9`)
	limit := eval[string](b, `(() => { const e = document.querySelectorAll(".choices button")[1]; e.click(); return e.dataset.limit; })()`)
	expectFigures(limit)
	b.waitFor("it is marked", `document.querySelector(".choices button[aria-pressed=true]")`)
	limitBefore := eval[string](b, `document.querySelector("#whatif-limit").value`)
	eval[any](b, `(() => {
		const over = [...document.querySelectorAll(".u-over")].at(-1), r = over.getBoundingClientRect();
		const at = { clientX: r.left + 4, clientY: r.top + 20, movementX: 1, bubbles: true };
		for (const what of ["mouseenter", "mousemove", "mousedown", "mouseup"]) over.dispatchEvent(new MouseEvent(what, at));
		setTimeout(() => over.dispatchEvent(new MouseEvent("click", at)), 100);
		return null;
	})()`)
	b.waitFor("a point is taken", fmt.Sprintf(`document.querySelector("#whatif-limit").value !== %q`, limitBefore))
	expectFigures(eval[string](b, `document.querySelector("#whatif-limit").value`))

	// The log stays while the page is open, and can be limited by something else, or in part.
	b.switchView("limits", "Limits")
	b.switchView("whatif", "What if")
	b.waitText("2,000 requests of")
	b.selectOption("whatif-key", "path")
	b.waitText("(path)")
	b.setField("whatif-where", "path~^/page/1")
	b.waitFor("a part", `document.querySelector(".read-log")?.innerText.includes("lines are not counted")`)

	// Errors are shown.
	b.allowLog("status of 400")
	b.setField("whatif-limit", "token-bucket 5")
	b.waitFor("wrong limit",
		`document.querySelector(".trial .wrong:not([hidden])")?.innerText.includes("token-bucket")`)
	b.drop("notes.txt", "this is no log\nat all\n")
	b.waitFor("a wrong log", `document.querySelector("main .problem")?.innerText.includes("format")`)
}

// comma writes a count as the page does, with a comma between thousands.
func comma(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", comma(n/1000), n%1000)
}

// TestWhatIfRecorded tries limits on the attempts that a limit has recorded.
func TestWhatIfRecorded(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false, auth.Entry{Name: "reader", Role: "read"})
	s.take("login", "alice", 5)
	s.take("login", "bob", 2)
	b := s.openTab(390, 844, true)
	b.allowLog("status of 401")
	b.run(navigate(s.base + "/"))
	b.typeInto("#token", s.tokens["reader"])
	b.pressButton(".signin", "Sign in")
	b.switchView("limits/login", "login")
	b.click("what if", `[...document.querySelectorAll("main a")].find((a) => a.innerText === "What if it were another?")`)
	b.waitText("7 requests of 2 keys (key)")
	b.waitText("the history of login")
	b.waitFor("by the limit itself", figures+` === "5 2 1"`)
	b.setField("whatif-limit", "fixed-window 1/1h from-first")
	b.waitFor("by another limit", figures+` === "2 5 2"`)
	b.selectOption("whatif-recorded", "login")
	b.waitFor("again", figures+` === "2 5 2"`)
}

// TestWhatIfShowsHostileLogs checks that names of logs and keys are text.
func TestWhatIfShowsHostileLogs(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	keys := []string{`<script>window.pwned = 1</script>`, "control \x01\x1b[31m\n", "right\u202eto left", strings.Repeat("😀", 128), `"'><img src=x onerror=window.pwned=1>`}
	var log bytes.Buffer
	e := json.NewEncoder(&log)
	for i := range 3 {
		for _, key := range keys {
			if err := e.Encode(map[string]any{"ts": 1795600000 + i, "user": key}); err != nil {
				t.Fatal(err)
			}
		}
	}
	log.WriteString("{\"ts\": \"<img src=x onerror=window.pwned=1>\"}\n")
	b := s.openTab(390, 844, false)
	b.openView("whatif", "What if")
	b.selectOption("whatif-key", "")
	b.setField("whatif-field", "user")
	b.drop("<img src=x onerror=window.pwned=1>.log", log.String())
	b.waitText("15 requests of 5 keys (user)")
	b.waitText("<img src=x onerror=window.pwned=1>.log")
	b.waitText("not read:")
	b.setField("whatif-limit", "fixed-window 1/1h from-first")
	b.waitFor("the figures", figures+` === "5 10 5"`)
	for _, text := range []string{`<script>window.pwned = 1</script>`, `control \u0001\u001b[31m\n`, `right\u202eto left`, strings.Repeat("😀", 128)} {
		quoted, _ := json.Marshal(text)
		b.waitFor(text, fmt.Sprintf("[...document.querySelectorAll('main .key')].some((e) => e.textContent === %s)", quoted))
	}
	if eval[bool](b, "'pwned' in window || document.querySelector('main script, main img[src=x]') !== null") {
		t.Error("a text of the log became HTML")
	}
	if width := eval[int64](b, "document.documentElement.scrollWidth"); width > 390 {
		t.Errorf("the view is %d wide on a phone of 390", width)
	}
}
