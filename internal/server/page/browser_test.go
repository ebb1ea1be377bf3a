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

// configFile is the config file of the server.
const configFile = `limits:
  api: {limit: token-bucket 1/1h burst 10, description: requests of a customer}
  login: sliding-log 3/1h history 1d
  search: leaky-bucket 1.5/s capacity 3
plans:
  pro: {api: token-bucket 100/s burst 200}
`

// pageServer is a server with the page.
type pageServer struct {
	t       *testing.T
	base    string
	service *service.Service
	limiter *headgate.Limiter
	limits  *catalog.Catalog
	tokens  map[string]string // by name of the caller
	away    atomic.Pointer[api.Away]
}

// newPageServer starts a server over HTTP and behind package edge, as headgate serve does. If there are callers, it
// requires their tokens. If split is true, it serves no admin actions, as if they had an address of their own.
func newPageServer(t *testing.T, split bool, callers ...auth.Entry) *pageServer {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	c, err := config.Parse("headgate.yaml", []byte(configFile))
	if err != nil {
		t.Fatal(err)
	}
	st := memory.New(&memory.Config{Names: true})
	limitCatalog, err := catalog.Open(t.Context(), st, &catalog.Config{Logger: logger, Every: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limitCatalog.Close)
	by := catalog.By{Author: "tester", Reason: "the beginning"}
	if _, _, err := limitCatalog.Apply(t.Context(), by, c.CatalogFile(), catalog.ApplyOnce); err != nil {
		t.Fatal(err)
	}
	s := &pageServer{t: t, limits: limitCatalog}
	initService(s, st, c)
	logs := whatif.New(&whatif.Config{Names: limitCatalog, Limiter: s.limiter})
	t.Cleanup(logs.Close)
	rc := rest.Config{OtherRoutes: logs.Routes(), Away: func(error) *api.Away { return s.away.Load() }}
	if len(callers) > 0 {
		rc.Tokens, s.tokens = authtest.Open(t, callers...)
	}
	h := rest.New(s.service, logger, &rc)
	if split {
		h, _, _ = rest.NewHandlers(s.service, logger, &rc)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := edge.NewServer(page.Beside(h), logger, &edge.Config{Proxied: rest.Proxied()})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	s.base = "http://" + l.Addr().String()
	return s
}

// initService sets the limiter and the service of s, which count the traffic for the live view.
func initService(s *pageServer, st *memory.Store, c *config.Config) {
	counter := traffic.New(nil)
	s.limiter = headgate.New(st, &headgate.Config{
		Names: s.limits, Observer: service.Observers{counter}, Timeout: time.Minute,
	})
	s.service = service.New(s.limiter, c, s.limits)
	s.service.UseTraffic(counter)
}

// take takes from a limit several times, also if it is refused.
func (s *pageServer) take(limit, key string, times int) {
	s.t.Helper()
	for range times {
		r := &api.Request{Charge: api.Charge{Limit: limit, Key: key}}
		if _, err := s.service.Take(s.t.Context(), r); err != nil {
			s.t.Fatal(err)
		}
	}
}

// browser is a tab of Chromium. An error on its page or a request to another host fails the test; see allowLog.
type browser struct {
	t     *testing.T
	ctx   context.Context //nolint:containedctx // of the tab
	s     *pageServer
	loads int // number of pages that were loaded

	mu       sync.Mutex
	problems []string        // errors on the page; guarded by mu
	allowed  map[string]bool // texts of lines of the log that are no problems; guarded by mu
}

// openTab opens a tab with a window of a size, and a dark or light page.
func (s *pageServer) openTab(width, height int64, dark bool) *browser {
	s.t.Helper()
	chromium.once.Do(func() { startChromium(s.t) })
	if chromium.err != nil || chromium.ctx == nil {
		s.t.Fatalf("Chromium: %v", chromium.err)
	}
	parent, cancel := context.WithTimeout(chromium.ctx, 15*time.Minute)
	ctx, stop := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	b := &browser{t: s.t, ctx: ctx, s: s, allowed: map[string]bool{}}
	s.t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		stop()
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.problems {
			s.t.Errorf("the page: %s", text)
		}
	})
	if err := chromedp.Listen(ctx, b.onEvent); err != nil {
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

// onEvent adds to problems what an event shows.
func (b *browser) onEvent(event any) {
	addProblem := func(format string, args ...any) {
		b.mu.Lock()
		b.problems = append(b.problems, fmt.Sprintf(format, args...))
		b.mu.Unlock()
	}
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text, _ := json.Marshal(e.ExceptionDetails)
		addProblem("exception: %s", text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			text, _ := json.Marshal(e.Args)
			addProblem("console: %s", text)
		}
	case *log.EventEntryAdded:
		b.mu.Lock()
		isAllowed := false
		for text := range b.allowed {
			isAllowed = isAllowed || strings.Contains(e.Entry.Text, text)
		}
		b.mu.Unlock()
		if !isAllowed {
			addProblem("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || "http://"+u.Host != b.s.base {
			if e.Request.URL != "about:blank" {
				addProblem("it requests %s", e.Request.URL)
			}
		}
	}
}

// allowLog allows lines of the log that contain a text.
func (b *browser) allowLog(text string) {
	b.mu.Lock()
	b.allowed[text] = true
	b.mu.Unlock()
}

// call sends a command of the DevTools protocol.
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

// text returns the visible text of the page.
func (b *browser) text() (text string) {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
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

// waitFor waits until a script is true.
func (b *browser) waitFor(what, script string) {
	b.t.Helper()
	ok := false
	defer func() {
		if !ok {
			b.t.Logf("the page has:\n%s", b.text())
		}
	}()
	await.Until(b.t, what, func() bool {
		ok = eval[bool](b, "Boolean("+script+")")
		return ok
	})
}

// waitText waits until the page has a text.
func (b *browser) waitText(text string) {
	b.t.Helper()
	quoted, _ := json.Marshal(text)
	b.waitFor(text, fmt.Sprintf("document.body.innerText.includes(%s)", quoted))
}

// openView loads a view and waits for its heading.
func (b *browser) openView(view, heading string) {
	b.t.Helper()
	b.loads++ // another address, so that the browser loads it
	b.run(navigate(fmt.Sprintf("%s/?%d#/%s", b.s.base, b.loads, view)))
	b.waitHeading(heading)
}

// switchView opens a view without loading the page again.
func (b *browser) switchView(view, heading string) {
	b.t.Helper()
	quoted, _ := json.Marshal("#/" + view)
	eval[any](b, fmt.Sprintf("location.hash = %s, null", quoted))
	b.waitHeading(heading)
}

// waitHeading waits for the heading of a view.
func (b *browser) waitHeading(heading string) {
	b.t.Helper()
	quoted, _ := json.Marshal(heading)
	b.waitFor(heading, fmt.Sprintf("document.querySelector('main h1')?.textContent === %s", quoted))
}

// actionCount returns the number of buttons of the view that change something: all but those that copy a text.
func (b *browser) actionCount() int {
	b.t.Helper()
	return eval[int](b, "[...document.querySelectorAll('main button')].filter((b) => b.innerText !== 'Copy').length")
}

// pressButton clicks the button with a text, within an element.
func (b *browser) pressButton(within, text string) {
	b.t.Helper()
	b.click(text, fmt.Sprintf("[...document.querySelectorAll(%q)].find((b) => b.innerText.trim() === %q && !b.disabled)",
		within+" button", text))
}

// click clicks an element as soon as it exists. It finds and clicks it in one step, since views redraw themselves.
func (b *browser) click(what, element string) {
	b.t.Helper()
	b.waitFor(what, "((e) => e && (e.click(), true))("+element+")")
}

// waitDialogClosed waits until no dialog is open. A dialog closes after it has shown its result.
func (b *browser) waitDialogClosed() {
	b.t.Helper()
	b.waitFor("the dialog closes", "!document.querySelector('dialog')")
}

// typeInto replaces the text of a field by key strokes.
func (b *browser) typeInto(field, text string) {
	b.t.Helper()
	b.waitFor(field, fmt.Sprintf("document.querySelector(%q)", field))
	eval[any](b, fmt.Sprintf("document.querySelector(%q).select(), null", field))
	b.run(chromedp.SendKeys(chromedp.CSS(field), text))
}

// pressKeys presses keys.
func (b *browser) pressKeys(keys string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(keys))
}

// openViewByKeys presses g and a letter until the view opens: a slow machine may press the letter too late.
func (b *browser) openViewByKeys(letter, heading string) {
	b.t.Helper()
	isOpen := fmt.Sprintf("document.querySelector('main h1')?.innerText === %q && "+
		"document.querySelector('nav [aria-current]')?.innerText.trim() === %[1]q", heading)
	await.Until(b.t, "g "+letter+" to lead to "+heading, func() bool {
		b.pressKeys("g" + letter)
		return eval[bool](b, fmt.Sprintf(`new Promise((there) => {
			const end = Date.now() + 2000;
			const look = () => (%s) ? there(true) : Date.now() > end ? there(false) : setTimeout(look, 20);
			look();
		})`, isOpen))
	})
}

// answer is an answer of the server.
type answer struct {
	status int
	header http.Header
	text   string
}

// sendRequest sends a request without a body, and with headers such as "If-None-Match: x".
func sendRequest(t *testing.T, method, address string, headers ...string) answer {
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
