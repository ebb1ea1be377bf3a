package page_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/tier"
)

// views has the path and the heading of each view.
var views = [][2]string{
	{"live", "Live"},
	{"keys", "Keys"},
	{"key/alice", "alice"},
	{"limits", "Limits"},
	{"whatif", "What if"},
	{"audit", "Audit"},
}

// TestEveryView checks that no view is wider than its window, light on a desktop and dark on a phone, or has an error.
func TestEveryView(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	s.take("api", "alice", 12)
	s.take("login", "alice", 4)
	s.take("search", "bob", 1)
	for _, size := range []struct {
		width, height int64
		dark          bool
	}{{1280, 900, false}, {390, 844, true}} {
		b := s.openTab(size.width, size.height, size.dark)
		for _, v := range views {
			b.openView(v[0], v[1])
			width := eval[int64](b, "document.documentElement.scrollWidth")
			if width > size.width {
				t.Errorf("%s is %d wide in a window of %d", v[0], width, size.width)
			}
		}
		background := eval[string](b, "getComputedStyle(document.body).backgroundColor")
		if dark := background == "rgb(18, 24, 28)"; dark != size.dark {
			t.Errorf("dark %t: the background is %s", size.dark, background)
		}
		b.allowLog("TrustedHTML")
		// The policy forbids to set HTML from text.
		if got := eval[string](b, `(() => { try { document.body.innerHTML = "<b>x</b>"; return "written"; } catch (e) { return e.name; } })()`); got != "TypeError" {
			t.Errorf("innerHTML: got %s, want TypeError", got)
		}
	}
}

// hostileKeys are keys that are HTML, scripts, URLs or control characters.
var hostileKeys = []string{
	`<script>window.pwned = 1</script>`, `"><img src=x onerror="window.pwned = 1">`, `' onclick='window.pwned = 1`,
	"control \x01\x1b[31m\r\n\ttab", "", "right\u202eto left\u2066", strings.Repeat("😀", 128), "#/key/../..?a=%00",
	`javascript:window.pwned=1`, "&lt;b&gt;",
}

// keyText returns how the page shows a key.
func keyText(key string) string {
	if key == "" {
		return "(empty key)"
	}
	return strings.NewReplacer("\x01", `\u0001`, "\x1b", `\u001b`, "\r", `\r`, "\n", `\n`, "\t", `\t`,
		"\u202e", `\u202e`, "\u2066", `\u2066`).Replace(key)
}

// TestHostileKeysAreText checks that hostile keys and reasons are text in each view.
func TestHostileKeysAreText(t *testing.T) {
	useChromium(t)
	keys := tier.Pick(hostileKeys[:5], hostileKeys, hostileKeys)
	s := newPageServer(t, false)
	b := s.openTab(1280, 900, false)
	for _, key := range keys {
		s.take("api", key, 11)
		s.take("login", key, 4)
	}
	for _, v := range []string{"live", "keys", "audit", "limits", "whatif"} {
		for _, key := range keys {
			body := map[string]string{"limit": "api", "key": key, "for": "1h", "reason": cmp.Or(key, "nothing")}
			s.postAdmin(b, "/v1/block", body)
		}
		heading := map[string]string{"live": "Live", "keys": "Keys", "audit": "Audit", "limits": "Limits", "whatif": "What if"}[v]
		b.openView(v, heading)
		if v == "keys" || v == "audit" || v == "live" {
			for _, key := range keys {
				quoted, _ := json.Marshal(keyText(key))
				b.waitFor(v+": "+keyText(key), fmt.Sprintf("[...document.querySelectorAll('main .key')].some((e) => e.textContent === %s)", quoted))
			}
		}
		b.checkHarmless(v)
	}
	for _, key := range keys {
		b.switchView("key/"+strings.ReplaceAll(url.QueryEscape(key), "+", "%20"), keyText(key))
		b.waitText("Blocked because:")
		b.waitText("History")
		b.checkHarmless("key")
		b.pressButton("[data-limit=api]", "Unblock")
		b.checkHarmless("dialog")
		b.pressButton("dialog", "Cancel")
	}
	// The link of each key in the list leads to the key.
	b.openView("keys", "Keys")
	b.waitFor("all keys", fmt.Sprintf("document.querySelectorAll('main .keylink').length === %d", 2*len(keys)))
	for i := range 2 * len(keys) {
		b.waitFor("the list", "document.querySelectorAll('main .keylink').length > 0")
		text := eval[string](b, fmt.Sprintf("(() => { const a = document.querySelectorAll('main .keylink')[%d]; const t = a.textContent; a.click(); return t; })()", i))
		quoted, _ := json.Marshal(text)
		b.waitFor("the page of "+text, fmt.Sprintf("document.querySelector('main h1')?.textContent === %s && document.body.innerText.includes('History')", quoted))
		eval[any](b, "history.back(), null")
	}
}

// checkHarmless fails the test if a key or a reason has become an element, a script or a link to another place.
func (b *browser) checkHarmless(where string) {
	b.t.Helper()
	got := eval[string](b, `[typeof window.pwned, document.scripts.length, document.querySelectorAll("main img, main b b, main script, [onerror], [onclick]").length,
		[...document.querySelectorAll("a")].filter((a) => a.protocol !== "http:").length].join(" ")`)
	if got != "undefined 1 0 0" {
		b.t.Errorf("%s: got %s, want nothing but text", where, got)
	}
}

// postAdmin sends an admin action from the page, which it opens first if the tab is empty.
func (s *pageServer) postAdmin(b *browser, path string, body any) {
	s.t.Helper()
	text, _ := json.Marshal(body)
	quoted, _ := json.Marshal(string(text))
	if b.text() == "" {
		b.openView("audit", "Audit")
	}
	status := eval[int](b, fmt.Sprintf("fetch(%q, {method: 'POST', body: %s}).then((r) => r.status)", path, quoted))
	if status != 200 {
		s.t.Fatalf("%s %s: status %d", path, text, status)
	}
}

// TestButtons presses each button that changes a key, and checks the store, the log of admin actions and the audit.
func TestButtons(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false, auth.Entry{Name: "oncall", Role: "admin"}, auth.Entry{Name: "reader", Role: "read"})
	var actions []service.AdminAction
	s.service.OnAdmin(func(a service.AdminAction) { actions = append(actions, a) })
	s.take("api", "mallory", 12)
	b := s.openTab(1280, 900, false)
	b.allowLog("status of 401")
	b.allowLog("status of 400")
	b.run(navigate(s.base + "/#/key/mallory"))
	b.typeInto("#token", s.tokens["oncall"])
	b.pressButton(".signin", "Sign in")
	b.waitText("refused now")
	apiLimit, _ := headgate.Named("api")
	inspect := func() headgate.Status {
		st, err := s.limiter.Inspect(t.Context(), apiLimit, "mallory")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}

	b.pressButton("[data-limit=api]", "Block…")
	b.typeInto("dialog [name=for]", "soon")
	b.pressButton("dialog", "Block")
	b.waitText(`"soon"`) // a part of the error
	b.typeInto("dialog [name=for]", "2h")
	b.typeInto("dialog [name=reason]", "password guessing")
	b.pressButton("dialog", "Block")
	b.waitText("The key is blocked.")
	b.waitText("by hand")
	b.waitDialogClosed()
	if st := inspect(); st.BlockedUntil.Sub(st.At).Hours() < 1.9 || st.Reason != "password guessing" {
		t.Errorf("after Block there is %+v", st)
	}
	b.pressButton("[data-limit=api]", "Unblock")
	b.typeInto("dialog [name=reason]", "a mistake")
	b.pressButton("dialog", "Unblock")
	b.waitText("The block was lifted.")
	b.waitDialogClosed()
	if st := inspect(); !st.BlockedUntil.IsZero() || st.Used.String() == "0" {
		t.Errorf("after Unblock there is %+v", st)
	}
	b.pressButton("[data-limit=api]", "Reset…")
	b.typeInto("dialog [name=reason]", "our own scanner")
	b.pressButton("dialog", "Reset")
	b.waitText("The key was reset.")
	b.waitDialogClosed()
	if st := inspect(); st.Exists {
		t.Errorf("after Reset there is %+v", st)
	}
	b.pressButton("[data-limit=api]", "Override…")
	b.typeInto("dialog [name=override]", "no limit at all")
	b.pressButton("dialog", "Override")
	b.waitFor("what is wrong", "document.querySelector('dialog .wrong').innerText.includes('override')")
	b.typeInto("dialog [name=override]", "token-bucket 50/s burst 77")
	b.typeInto("dialog [name=reason]", "moves his mail")
	b.pressButton("dialog", "Override")
	b.waitText("The override is in force.")
	b.waitText("token-bucket 50/s burst 77")
	b.waitText("moves his mail")
	b.waitDialogClosed()
	if l, err := s.limits.Find(t.Context(), "api", "mallory"); err != nil || l.String() != "token-bucket 50/s burst 77" {
		t.Errorf("after Override there is %s, %v", l, err)
	}
	b.pressButton("[data-limit=api]", "Remove override")
	b.pressButton("dialog", "Remove")
	b.waitText("The override was removed.")
	b.waitDialogClosed()
	if l, err := s.limits.Find(t.Context(), "api", "mallory"); err != nil || l.String() != "token-bucket 1/1h burst 10" {
		t.Errorf("after Remove override there is %s, %v", l, err)
	}

	var lines []string
	for _, a := range actions {
		lines = append(lines, fmt.Sprint(a.Verb, " ", a.Limit, " ", a.Key, " by ", a.Caller, ": ", a.Reason))
	}
	want := "block api mallory by oncall: password guessing, unblock api mallory by oncall: a mistake, reset api mallory by oncall: our own scanner"
	if got := strings.Join(lines, ", "); got != want {
		t.Errorf("got the actions %s, want %s", got, want)
	}
	b.checkAuditOfMallory()
}

// checkAuditOfMallory checks that the audit has the actions of TestButtons.
func (b *browser) checkAuditOfMallory() {
	b.t.Helper()
	b.switchView("audit?key=mallory", "Audit")
	for _, text := range []string{"password guessing", "a mistake", "our own scanner", "moves his mail", "token-bucket 50/s burst 77"} {
		b.waitText(text)
	}
	if by := eval[string](b, "[...new Set([...document.querySelectorAll('.entry .by b')].map((e) => e.innerText))].join()"); by != "oncall" {
		b.t.Errorf("the authors in the audit: got %s, want oncall", by)
	}
	b.pressButton(".head", "Catalog")
	b.waitFor("the catalog alone", "document.querySelectorAll('.entry').length === 2")
}

// TestSignIn checks the page for tokens of all roles, for an unknown token, and after signing out.
func TestSignIn(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false, auth.Entry{Name: "oncall", Role: "admin"}, auth.Entry{Name: "reader", Role: "read"},
		auth.Entry{Name: "shop", Role: "take"}, auth.Entry{Name: "some", Role: "admin", Limits: []string{"login"}})
	s.take("api", "mallory", 1)
	s.take("login", "mallory", 1)
	b := s.openTab(1280, 900, false)
	for _, status := range []int{401, 403} {
		b.allowLog(fmt.Sprintf("status of %d", status))
	}
	b.run(navigate(s.base + "/"))
	signIn := func(token string) {
		b.typeInto("#token", token)
		b.pressButton(".signin", "Sign in")
	}
	signIn("hgt_wrong")
	b.waitText("This token is not known here.")
	signIn(s.tokens["shop"])
	b.waitText("may not look at limits and keys")
	signIn(s.tokens["reader"])
	b.waitFor("Live", "document.querySelector('main h1')?.innerText === 'Live'")
	b.switchView("key/mallory", "mallory")
	b.waitText("read only")
	if n := b.actionCount(); n != 0 {
		t.Errorf("a reader has %d buttons", n)
	}
	b.run(navigate(s.base + "/#/audit")) // the tab keeps the token
	b.waitFor("Audit", "document.querySelector('main h1')?.innerText === 'Audit'")
	if stored := eval[string](b, "document.cookie + Object.values(localStorage).join()"); strings.Contains(stored, "hgt_") {
		t.Errorf("the token is stored in %q, want the session storage alone", stored)
	}
	b.pressButton(".who", "Sign out")
	b.waitText("This server knows its callers by tokens")
	if stored := eval[int](b, "sessionStorage.length"); stored != 0 {
		t.Errorf("%d items are in the session storage after signing out, want 0", stored)
	}
	signIn(s.tokens["some"])
	b.switchView("key/mallory", "mallory")
	b.waitText("sliding-log 3/1h history 1d")
	if text := b.text(); strings.Contains(text, "token-bucket 1/1h burst 10") {
		t.Errorf("a caller that may touch login only sees api:\n%s", text)
	}
}

// TestKeyboard checks the keys that open views, move in lists, search, and change the colours.
func TestKeyboard(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	s.take("api", "alice", 3)
	s.take("api", "bob", 9)
	b := s.openTab(1280, 900, false)
	b.openView("live", "Live")
	for _, c := range [][2]string{{"k", "Keys"}, {"l", "Limits"}, {"w", "What if"}, {"a", "Audit"}, {"v", "Live"}} {
		b.openViewByKeys(c[0], c[1])
	}
	b.openViewByKeys("k", "Keys")
	b.waitFor("the keys", "document.querySelectorAll('main .keylink').length === 2")
	b.pressKeys("j")
	b.waitFor("the fullest", "document.activeElement.innerText === 'bob'")
	b.pressKeys("j")
	b.waitFor("the next", "document.activeElement.innerText === 'alice'")
	b.pressKeys("k")
	b.waitFor("back", "document.activeElement.innerText === 'bob'")
	b.pressKeys(kb.Enter)
	b.waitFor("its page", "document.querySelector('main h1')?.innerText === 'bob'")
	b.pressKeys("/")
	b.waitFor("the search", "document.activeElement.type === 'search'")
	b.typeInto(".find", "alice"+kb.Enter)
	b.waitFor("what was found", "document.querySelector('main h1')?.innerText === 'alice'")
	b.pressKeys("?")
	b.waitFor("the help", "document.querySelector('dialog[open]')?.innerText.includes('Find a key')")
	b.pressKeys(kb.Escape)
	b.waitFor("its end", "!document.querySelector('dialog')")
	for _, want := range []string{"rgb(251, 250, 247)", "rgb(18, 24, 28)"} { // light, dark
		b.pressKeys("t")
		b.waitFor(want, fmt.Sprintf("getComputedStyle(document.body).backgroundColor === %q", want))
	}
	b.openView("live", "Live")
	b.waitFor("dark after loading", "getComputedStyle(document.body).backgroundColor === 'rgb(18, 24, 28)'")
}

// TestTheLevelMoves checks that the chart of a key's level changes while the key is charged.
func TestTheLevelMoves(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	s.take("api", "alice", 2)
	b := s.openTab(1280, 900, false)
	b.openView("key/alice", "alice")
	b.waitFor("2 of 10", "/(2|1[.]9.?) of 10/.test(document.body.innerText)") // it drains meanwhile
	b.waitFor("the chart", "document.querySelector('[data-limit=api] canvas')")
	script := "document.querySelector('[data-limit=api] canvas').toDataURL()"
	image := eval[string](b, script)
	s.take("api", "alice", 9)
	b.waitText("refused now")
	b.waitFor("a row of the history", "document.querySelectorAll('main td .badge.refused').length === 1")
	b.waitFor("another picture", fmt.Sprintf("%s !== %q", script, image))
	// The marks of refusals are drawn above the plot, in their colour.
	b.waitFor("a mark", `(() => {
		const c = document.querySelector("[data-limit=api] canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, 24).data;
		for (let i = 0; i < d.length; i += 4) if (d[i] === 203 && d[i + 1] === 47 && d[i + 2] === 31) return true;
		return false;
	})()`)
}

// TestLive checks the live figures while decisions are made.
func TestLive(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	s.take("api", "alice", 13)
	s.take("api", "bob", 10)
	s.take("login", "carol", 2)
	b := s.openTab(1280, 900, false)
	b.openView("live", "Live")
	const rows = "[...document.querySelectorAll('table.keys tbody tr')].map((r) => r.innerText.replaceAll(/\\s+/g, ' ').trim())"
	b.waitFor("alice, refused three times", rows+"[0]?.startsWith('alice api 100 % in ') && "+rows+"[0].endsWith(' 3')")
	if refusedRows := eval[[]string](b, rows); len(refusedRows) != 1 {
		t.Errorf("got the refused keys %q, want alice alone", refusedRows)
	}
	b.waitFor("the limits", "document.querySelectorAll('table.limits tbody tr').length === 2")
	share := eval[string](b, "[...document.querySelectorAll('table.limits tbody tr')].map((r) => r.cells[0].innerText + ' ' + r.cells[3].innerText).join()")
	if share != "api 13 %,login 0 %" && share != "login 0 %,api 13 %" {
		t.Errorf("got the shares %s, want api 13 %% and login 0 %%", share)
	}
	image := eval[string](b, "document.querySelector('canvas').toDataURL()")
	s.take("api", "dave", 40)
	b.waitFor("dave, refused most", rows+"[0]?.startsWith('dave api 100 %')")
	b.waitFor("another picture", fmt.Sprintf("document.querySelector('canvas').toDataURL() !== %q", image))
	b.pressButton("main", "Most used")
	b.waitFor("the most used", rows+".length === 4 && document.body.innerText.includes('Used, 5 min')")
	b.pressButton("main", "1 min")
	b.waitText("refused of all in a minute")
	b.pressButton("main", "Pause")
	b.waitText("Go on")
	s.take("login", "erin", 3)
	b.pressButton("main", "Go on")
	b.waitFor("erin", rows+".some((r) => r.startsWith('erin login 100 %'))")
	// The view has the last minute only, and a slow machine may have taken longer for the steps above.
	s.take("login", "carol", 1)
	b.click("login", "[...document.querySelectorAll('table.limits a')].find((a) => a.innerText === 'login')")
	b.waitFor("one limit", "document.querySelectorAll('table.limits tbody tr').length === 1")
	b.click("all limits", "document.querySelector('[aria-label=\"All limits\"]')")
	s.take("api", "alice", 1)
	s.take("login", "carol", 1)
	b.waitFor("all limits", "document.querySelectorAll('table.limits tbody tr').length === 2")
}
