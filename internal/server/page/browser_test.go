package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/auth/authtest"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/page"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/internal/server/whatif"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// limits are those of the server of a test.
const limits = `limits:
  api: {limit: token-bucket 1/1h burst 10, description: requests of a customer}
  login: sliding-log 3/1h history 1d
  search: leaky-bucket 1.5/s capacity 3
plans:
  pro: {api: token-bucket 100/s burst 200}
`

// served is a server with the page.
type served struct {
	t       *testing.T
	base    string
	service *service.Service
	limiter *headgate.Limiter
	limits  *catalog.Catalog
	tokens  map[string]string // by the name of the caller
	away    atomic.Pointer[api.Away]
}

// newServed starts a server as headgate serve does: over HTTP, behind package edge. With callers it knows
// them by tokens; split keeps admin actions away from its address.
func newServed(t *testing.T, split bool, callers ...auth.Entry) *served {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	c, err := config.Parse("headgate.yaml", []byte(limits))
	if err != nil {
		t.Fatal(err)
	}
	st := memory.New(&memory.Config{Names: true})
	names, err := catalog.Open(t.Context(), st, &catalog.Config{Logger: quiet, Every: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	by := catalog.By{Author: "tester", Reason: "the beginning"}
	if _, _, err := names.Apply(t.Context(), by, c.Defines(), catalog.Once); err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, limits: names}
	wire(s, st, c)
	logs := whatif.New(&whatif.Config{Names: names, Limiter: s.limiter})
	t.Cleanup(logs.Close)
	rc := rest.Config{More: logs.Routes(), Away: func(error) *api.Away { return s.away.Load() }}
	if len(callers) > 0 {
		rc.Tokens, s.tokens = authtest.Open(t, callers...)
	}
	h := rest.New(s.service, quiet, &rc)
	if split {
		h, _, _ = rest.Split(s.service, quiet, &rc)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := edge.NewServer(page.Beside(h), quiet, &edge.Config{Proxied: rest.Proxied()})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	s.base = "http://" + l.Addr().String()
	return s
}

// wire makes the limiter and the service, with what tells of live figures.
func wire(s *served, st *memory.Store, c *config.Config) {
	seen := traffic.New(nil)
	s.limiter = headgate.New(st, &headgate.Config{
		Names: s.limits, Observer: service.Observers{seen}, Timeout: time.Minute,
	})
	s.service = service.New(s.limiter, c, s.limits)
	s.service.UseTraffic(seen)
}

// take charges a limit several times.
func (s *served) take(limit, key string, times int) {
	s.t.Helper()
	for range times {
		r := &api.Request{Charge: api.Charge{Limit: limit, Key: key}}
		if _, err := s.service.Take(s.t.Context(), r); err != nil {
			s.t.Fatal(err)
		}
	}
}

// browser is a tab of Chromium. What goes wrong on its page fails the test, and so does a request to another
// host.
type browser struct {
	t     *testing.T
	ctx   context.Context //nolint:containedctx // of the tab
	s     *served
	loads int // pages

	mu     sync.Mutex
	wrong  []string        // guarded by mu
	expect map[string]bool // texts in lines of the log that the test brings about; guarded by mu
}

// open opens a tab of a size.
func (s *served) open(width, height int64, dark bool) *browser {
	s.t.Helper()
	chromium.once.Do(func() { start(s.t) })
	if chromium.err != nil || chromium.ctx == nil {
		s.t.Fatalf("Chromium: %v", chromium.err)
	}
	within, end := context.WithTimeout(chromium.ctx, 15*time.Minute)
	ctx, stop := chromedp.NewContext(within, chromedp.WithNewBrowserContext())
	b := &browser{t: s.t, ctx: ctx, s: s, expect: map[string]bool{}}
	s.t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		stop()
		end()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.wrong {
			s.t.Errorf("the page: %s", text)
		}
	})
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		s.t.Fatal(err)
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
	})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	return b
}

// heard notes what goes wrong.
func (b *browser) heard(event any) {
	say := func(format string, args ...any) {
		b.mu.Lock()
		b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
		b.mu.Unlock()
	}
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text, _ := json.Marshal(e.ExceptionDetails)
		say("exception: %s", text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			text, _ := json.Marshal(e.Args)
			say("console: %s", text)
		}
	case *log.EventEntryAdded:
		b.mu.Lock()
		expected := false
		for text := range b.expect {
			expected = expected || strings.Contains(e.Entry.Text, text)
		}
		b.mu.Unlock()
		if !expected {
			say("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || "http://"+u.Host != b.s.base {
			if e.Request.URL != "about:blank" {
				say("it asks %s", e.Request.URL)
			}
		}
	}
}

// expected lets the browser log a line with a text.
func (b *browser) expected(text string) {
	b.mu.Lock()
	b.expect[text] = true
	b.mu.Unlock()
}

// call sends a command of the protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v; the page has:\n%s", err, b.text())
	}
}

// text returns what can be read on the page.
func (b *browser) text() (text string) {
	ctx, end := context.WithTimeout(b.ctx, 10*time.Second)
	defer end()
	text, _ = chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	return text
}

// eval runs a script on the page, as a debugger does, and returns its value.
func eval[T any](b *browser, script string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return value
}

// until waits until a script is true.
func (b *browser) until(what, script string) {
	b.t.Helper()
	so := false
	defer func() {
		if !so {
			b.t.Logf("the page has:\n%s", b.text())
		}
	}()
	await.Until(b.t, what, func() bool {
		so = eval[bool](b, "Boolean("+script+")")
		return so
	})
}

// reads waits until the page has a text.
func (b *browser) reads(text string) {
	b.t.Helper()
	quoted, _ := json.Marshal(text)
	b.until(text, fmt.Sprintf("document.body.innerText.includes(%s)", quoted))
}

// goes opens a view and waits for its heading.
func (b *browser) goes(view, heading string) {
	b.t.Helper()
	b.loads++ // so that it is another address, which is loaded
	b.run(navigate(fmt.Sprintf("%s/?%d#/%s", b.s.base, b.loads, view)))
	b.shows(heading)
}

// goesOn opens a view without loading the page again.
func (b *browser) goesOn(view, heading string) {
	b.t.Helper()
	quoted, _ := json.Marshal("#/" + view)
	eval[any](b, fmt.Sprintf("location.hash = %s, null", quoted))
	b.shows(heading)
}

// shows waits for the heading of a view.
func (b *browser) shows(heading string) {
	b.t.Helper()
	quoted, _ := json.Marshal(heading)
	b.until(heading, fmt.Sprintf("document.querySelector('main h1')?.textContent === %s", quoted))
}

// press clicks the button with a text, within an element.
func (b *browser) press(within, text string) {
	b.t.Helper()
	b.clicks(text, fmt.Sprintf("[...document.querySelectorAll(%q)].find((b) => b.innerText.trim() === %q && !b.disabled)",
		within+" button", text))
}

// clicks clicks an element as soon as there is one. Views draw themselves again and again, so it looks and clicks in
// one step.
func (b *browser) clicks(what, element string) {
	b.t.Helper()
	b.until(what, "((e) => e && (e.click(), true))("+element+")")
}

// closes waits until no dialog is open: one closes after what it has done is shown.
func (b *browser) closes() {
	b.t.Helper()
	b.until("the dialog closes", "!document.querySelector('dialog')")
}

// types writes into a field, as a person does who deletes what is there.
func (b *browser) types(field, text string) {
	b.t.Helper()
	b.until(field, fmt.Sprintf("document.querySelector(%q)", field))
	eval[any](b, fmt.Sprintf("document.querySelector(%q).select(), null", field))
	b.run(chromedp.SendKeys(chromedp.CSS(field), text))
}

// keys presses keys.
func (b *browser) keys(keys string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(keys))
}

// goesByKeys presses g and a letter, until they came one soon enough after the other.
func (b *browser) goesByKeys(letter, heading string) {
	b.t.Helper()
	there := fmt.Sprintf("document.querySelector('main h1')?.innerText === %q && "+
		"document.querySelector('nav [aria-current]')?.innerText.trim() === %[1]q", heading)
	await.Until(b.t, "g "+letter+" to lead to "+heading, func() bool {
		b.keys("g" + letter)
		return eval[bool](b, fmt.Sprintf(`new Promise((there) => {
			const end = Date.now() + 2000;
			const look = () => (%s) ? there(true) : Date.now() > end ? there(false) : setTimeout(look, 20);
			look();
		})`, there))
	})
}

// answer is an answer that was read.
type answer struct {
	status int
	header http.Header
	text   string
}

// get sends a request with headers such as "If-None-Match: x".
func get(t *testing.T, method, address string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

// navigate loads an address.
func navigate(address string) chromedp.Action[chromedp.Void] { return chromedp.Navigate(address) }
