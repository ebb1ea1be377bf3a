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

// views are all views, and their headings.
var views = [][2]string{
	{"live", "Live"},
	{"keys", "Keys"},
	{"key/alice", "alice"},
	{"limits", "Limits"},
	{"whatif", "What if"},
	{"audit", "Audit"},
}

// TestEveryView opens all views in a large window and on a phone, light and dark: nothing goes wrong, no other
// host is asked, and nothing is wider than the window.
func TestEveryView(t *testing.T) {
	useChromium(t)
	s := newServed(t, false)
	s.take("api", "alice", 12)
	s.take("login", "alice", 4)
	s.take("search", "bob", 1)
	for _, size := range []struct {
		width, height int64
		dark          bool
	}{{1280, 900, false}, {390, 844, true}} {
		b := s.open(size.width, size.height, size.dark)
		for _, v := range views {
			b.goes(v[0], v[1])
			wide := eval[int64](b, "document.documentElement.scrollWidth")
			if wide > size.width {
				t.Errorf("%s is %d wide in a window of %d", v[0], wide, size.width)
			}
		}
		paper := eval[string](b, "getComputedStyle(document.body).backgroundColor")
		if dark := paper == "rgb(18, 24, 28)"; dark != size.dark {
			t.Errorf("dark %t: the background is %s", size.dark, paper)
		}
		b.expected("TrustedHTML")
		// The policy holds: what a page of this origin could be made to do does not work.
		if got := eval[string](b, `(() => { try { document.body.innerHTML = "<b>x</b>"; return "written"; } catch (e) { return e.name; } })()`); got != "TypeError" {
			t.Errorf("innerHTML: %s", got)
		}
	}
}

// hostile are keys that try to be something else than text.
var hostile = []string{
	`<script>window.pwned = 1</script>`, `"><img src=x onerror="window.pwned = 1">`, `' onclick='window.pwned = 1`,
	"control \x01\x1b[31m\r\n\ttab", "", "right\u202eto left\u2066", strings.Repeat("😀", 128), "#/key/../..?a=%00",
	`javascript:window.pwned=1`, "&lt;b&gt;",
}

// shown returns how the page shows a key.
func shown(key string) string {
	if key == "" {
		return "(empty key)"
	}
	return strings.NewReplacer("\x01", `\u0001`, "\x1b", `\u001b`, "\r", `\r`, "\n", `\n`, "\t", `\t`,
		"\u202e", `\u202e`, "\u2066", `\u2066`).Replace(key)
}

// TestHostileKeysAreText shows such keys, and such reasons, in each view.
func TestHostileKeysAreText(t *testing.T) {
	useChromium(t)
	hostile := tier.Pick(hostile[:5], hostile, hostile)
	s := newServed(t, false)
	b := s.open(1280, 900, false)
	for _, key := range hostile {
		s.take("api", key, 11)
		s.take("login", key, 4)
	}
	for _, v := range []string{"live", "keys", "audit", "limits", "whatif"} {
		for _, key := range hostile {
			body := map[string]string{"limit": "api", "key": key, "for": "1h", "reason": cmp.Or(key, "nothing")}
			s.admin(b, "/v1/block", body)
		}
		heading := map[string]string{"live": "Live", "keys": "Keys", "audit": "Audit", "limits": "Limits", "whatif": "What if"}[v]
		b.goes(v, heading)
		if v == "keys" || v == "audit" || v == "live" {
			for _, key := range hostile {
				quoted, _ := json.Marshal(shown(key))
				b.until(v+": "+shown(key), fmt.Sprintf("[...document.querySelectorAll('main .key')].some((e) => e.textContent === %s)", quoted))
			}
		}
		b.harmless(v)
	}
	for _, key := range hostile {
		b.goesOn("key/"+strings.ReplaceAll(url.QueryEscape(key), "+", "%20"), shown(key))
		b.reads("Blocked because:")
		b.reads("History")
		b.harmless("key")
		b.press("[data-limit=api]", "Unblock")
		b.harmless("dialog")
		b.press("dialog", "Cancel")
	}
	// As it comes by the list: the link of each key leads to it.
	b.goes("keys", "Keys")
	b.until("all keys", fmt.Sprintf("document.querySelectorAll('main .keylink').length === %d", 2*len(hostile)))
	for i := range 2 * len(hostile) {
		b.until("the list", "document.querySelectorAll('main .keylink').length > 0")
		text := eval[string](b, fmt.Sprintf("(() => { const a = document.querySelectorAll('main .keylink')[%d]; const t = a.textContent; a.click(); return t; })()", i))
		quoted, _ := json.Marshal(text)
		b.until("the page of "+text, fmt.Sprintf("document.querySelector('main h1')?.textContent === %s && document.body.innerText.includes('History')", quoted))
		eval[any](b, "history.back(), null")
	}
}

// harmless fails if a text from outside has become something else.
func (b *browser) harmless(where string) {
	b.t.Helper()
	got := eval[string](b, `[typeof window.pwned, document.scripts.length, document.querySelectorAll("main img, main b b, main script, [onerror], [onclick]").length,
		[...document.querySelectorAll("a")].filter((a) => a.protocol !== "http:").length].join(" ")`)
	if got != "undefined 1 0 0" {
		b.t.Errorf("%s: %s", where, got)
	}
}

// admin asks for an admin action, as the page does.
func (s *served) admin(b *browser, path string, body any) {
	s.t.Helper()
	text, _ := json.Marshal(body)
	quoted, _ := json.Marshal(string(text))
	if b.text() == "" {
		b.goes("audit", "Audit")
	}
	status := eval[int](b, fmt.Sprintf("fetch(%q, {method: 'POST', body: %s}).then((r) => r.status)", path, quoted))
	if status != 200 {
		s.t.Fatalf("%s %s: status %d", path, text, status)
	}
}

// TestButtons presses each button of the page of a key, and looks at what the store has and the audit says.
func TestButtons(t *testing.T) {
	useChromium(t)
	s := newServed(t, false, auth.Entry{Name: "oncall", Role: "admin"}, auth.Entry{Name: "reader", Role: "read"})
	var told []service.AdminAction
	s.service.OnAdmin(func(a service.AdminAction) { told = append(told, a) })
	s.take("api", "mallory", 12)
	b := s.open(1280, 900, false)
	b.expected("status of 401")
	b.expected("status of 400")
	b.run(navigate(s.base + "/#/key/mallory"))
	b.types("#token", s.tokens["oncall"])
	b.press(".signin", "Sign in")
	b.reads("refused now")
	api, _ := headgate.Named("api")
	inspect := func() headgate.Status {
		st, err := s.limiter.Inspect(t.Context(), api, "mallory")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}

	b.press("[data-limit=api]", "Block…")
	b.types("dialog [name=for]", "soon")
	b.press("dialog", "Block")
	b.reads(`"soon"`) // what is wrong with it
	b.types("dialog [name=for]", "2h")
	b.types("dialog [name=reason]", "password guessing")
	b.press("dialog", "Block")
	b.reads("The key is blocked.")
	b.reads("by hand")
	b.closes()
	if st := inspect(); st.BlockedUntil.Sub(st.At).Hours() < 1.9 || st.Reason != "password guessing" {
		t.Errorf("after Block there is %+v", st)
	}
	b.press("[data-limit=api]", "Unblock")
	b.types("dialog [name=reason]", "a mistake")
	b.press("dialog", "Unblock")
	b.reads("The block was lifted.")
	b.closes()
	if st := inspect(); !st.BlockedUntil.IsZero() || st.Used.String() == "0" {
		t.Errorf("after Unblock there is %+v", st)
	}
	b.press("[data-limit=api]", "Reset…")
	b.types("dialog [name=reason]", "our own scanner")
	b.press("dialog", "Reset")
	b.reads("The key was reset.")
	b.closes()
	if st := inspect(); st.Exists {
		t.Errorf("after Reset there is %+v", st)
	}
	b.press("[data-limit=api]", "Override…")
	b.types("dialog [name=override]", "no limit at all")
	b.press("dialog", "Override")
	b.until("what is wrong", "document.querySelector('dialog .wrong').innerText.includes('override')")
	b.types("dialog [name=override]", "token-bucket 50/s burst 77")
	b.types("dialog [name=reason]", "moves his mail")
	b.press("dialog", "Override")
	b.reads("The override is in force.")
	b.reads("token-bucket 50/s burst 77")
	b.reads("moves his mail")
	b.closes()
	if l, err := s.limits.Find(t.Context(), "api", "mallory"); err != nil || l.String() != "token-bucket 50/s burst 77" {
		t.Errorf("after Override there is %s, %v", l, err)
	}
	b.press("[data-limit=api]", "Remove override")
	b.press("dialog", "Remove")
	b.reads("The override was removed.")
	b.closes()
	if l, err := s.limits.Find(t.Context(), "api", "mallory"); err != nil || l.String() != "token-bucket 1/1h burst 10" {
		t.Errorf("after Remove override there is %s, %v", l, err)
	}

	var verbs []string
	for _, a := range told {
		verbs = append(verbs, fmt.Sprint(a.Verb, " ", a.Limit, " ", a.Key, " by ", a.Caller, ": ", a.Reason))
	}
	want := "block api mallory by oncall: password guessing, unblock api mallory by oncall: a mistake, reset api mallory by oncall: our own scanner"
	if got := strings.Join(verbs, ", "); got != want {
		t.Errorf("the log has %s", got)
	}
	b.tellsOfMallory()
}

// tellsOfMallory looks for what TestButtons has done in the audit.
func (b *browser) tellsOfMallory() {
	b.t.Helper()
	b.goesOn("audit?key=mallory", "Audit")
	for _, text := range []string{"password guessing", "a mistake", "our own scanner", "moves his mail", "token-bucket 50/s burst 77"} {
		b.reads(text)
	}
	if by := eval[string](b, "[...new Set([...document.querySelectorAll('.entry .by b')].map((e) => e.innerText))].join()"); by != "oncall" {
		b.t.Errorf("the audit says by %s", by)
	}
	b.press(".head", "Catalog")
	b.until("the catalog alone", "document.querySelectorAll('.entry').length === 2")
}

// TestSignIn shows tokens of all roles, and none.
func TestSignIn(t *testing.T) {
	useChromium(t)
	s := newServed(t, false, auth.Entry{Name: "oncall", Role: "admin"}, auth.Entry{Name: "reader", Role: "read"},
		auth.Entry{Name: "shop", Role: "take"}, auth.Entry{Name: "some", Role: "admin", Limits: []string{"login"}})
	s.take("api", "mallory", 1)
	s.take("login", "mallory", 1)
	b := s.open(1280, 900, false)
	for _, status := range []int{401, 403} {
		b.expected(fmt.Sprintf("status of %d", status))
	}
	b.run(navigate(s.base + "/"))
	sign := func(token string) {
		b.types("#token", token)
		b.press(".signin", "Sign in")
	}
	sign("hgt_wrong")
	b.reads("This token is not known here.")
	sign(s.tokens["shop"])
	b.reads("may not look at limits and keys")
	sign(s.tokens["reader"])
	b.until("Live", "document.querySelector('main h1')?.innerText === 'Live'")
	b.goesOn("key/mallory", "mallory")
	b.reads("read only")
	if n := eval[int](b, "[...document.querySelectorAll('main button')].filter((b) => b.innerText !== 'Copy').length"); n != 0 {
		t.Errorf("a reader has %d buttons", n)
	}
	b.run(navigate(s.base + "/#/audit")) // the tab keeps the token
	b.until("Audit", "document.querySelector('main h1')?.innerText === 'Audit'")
	if stored := eval[string](b, "document.cookie + Object.values(localStorage).join()"); strings.Contains(stored, "hgt_") {
		t.Errorf("the token is kept in %q", stored)
	}
	b.press(".who", "Sign out")
	b.reads("This server knows its callers by tokens")
	if stored := eval[int](b, "sessionStorage.length"); stored != 0 {
		t.Errorf("%d things are left after signing out", stored)
	}
	sign(s.tokens["some"])
	b.goesOn("key/mallory", "mallory")
	b.reads("sliding-log 3/1h history 1d")
	if text := b.text(); strings.Contains(text, "token-bucket 1/1h burst 10") {
		t.Errorf("who may touch login reads of api:\n%s", text)
	}
}

// TestKeyboard goes through the page without a mouse.
func TestKeyboard(t *testing.T) {
	useChromium(t)
	s := newServed(t, false)
	s.take("api", "alice", 3)
	s.take("api", "bob", 9)
	b := s.open(1280, 900, false)
	b.goes("live", "Live")
	for _, c := range [][2]string{{"k", "Keys"}, {"l", "Limits"}, {"w", "What if"}, {"a", "Audit"}, {"v", "Live"}} {
		b.goesByKeys(c[0], c[1])
	}
	b.goesByKeys("k", "Keys")
	b.until("the keys", "document.querySelectorAll('main .keylink').length === 2")
	b.keys("j")
	b.until("the fullest", "document.activeElement.innerText === 'bob'")
	b.keys("j")
	b.until("the next", "document.activeElement.innerText === 'alice'")
	b.keys("k")
	b.until("back", "document.activeElement.innerText === 'bob'")
	b.keys(kb.Enter)
	b.until("its page", "document.querySelector('main h1')?.innerText === 'bob'")
	b.keys("/")
	b.until("the search", "document.activeElement.type === 'search'")
	b.types(".find", "alice"+kb.Enter)
	b.until("what was found", "document.querySelector('main h1')?.innerText === 'alice'")
	b.keys("?")
	b.until("the help", "document.querySelector('dialog[open]')?.innerText.includes('Find a key')")
	b.keys(kb.Escape)
	b.until("its end", "!document.querySelector('dialog')")
	for _, want := range []string{"rgb(251, 250, 247)", "rgb(18, 24, 28)"} { // light, dark
		b.keys("t")
		b.until(want, fmt.Sprintf("getComputedStyle(document.body).backgroundColor === %q", want))
	}
	b.goes("live", "Live")
	b.until("dark after loading", "getComputedStyle(document.body).backgroundColor === 'rgb(18, 24, 28)'")
}

// TestTheLevelMoves draws the level of a key while it is charged.
func TestTheLevelMoves(t *testing.T) {
	useChromium(t)
	s := newServed(t, false)
	s.take("api", "alice", 2)
	b := s.open(1280, 900, false)
	b.goes("key/alice", "alice")
	b.until("2 of 10", "/(2|1[.]9.?) of 10/.test(document.body.innerText)") // it drains meanwhile
	b.until("the chart", "document.querySelector('[data-limit=api] canvas')")
	picture := "document.querySelector('[data-limit=api] canvas').toDataURL()"
	before := eval[string](b, picture)
	s.take("api", "alice", 9)
	b.reads("refused now")
	b.until("a row of the history", "document.querySelectorAll('main td .badge.refused').length === 1")
	b.until("another picture", fmt.Sprintf("%s !== %q", picture, before))
	// The marks of refusals are drawn above the plot, in their colour.
	b.until("a mark", `(() => {
		const c = document.querySelector("[data-limit=api] canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, 24).data;
		for (let i = 0; i < d.length; i += 4) if (d[i] === 203 && d[i + 1] === 47 && d[i + 2] === 31) return true;
		return false;
	})()`)
}

// TestLive looks at the live figures while decisions are made.
func TestLive(t *testing.T) {
	useChromium(t)
	s := newServed(t, false)
	s.take("api", "alice", 13)
	s.take("api", "bob", 10)
	s.take("login", "carol", 2)
	b := s.open(1280, 900, false)
	b.goes("live", "Live")
	const rows = "[...document.querySelectorAll('table.keys tbody tr')].map((r) => r.innerText.replaceAll(/\\s+/g, ' ').trim())"
	b.until("alice, refused three times", rows+"[0]?.startsWith('alice api 100 % in ') && "+rows+"[0].endsWith(' 3')")
	if all := eval[[]string](b, rows); len(all) != 1 {
		t.Errorf("most refused are %q", all)
	}
	b.until("the limits", "document.querySelectorAll('table.limits tbody tr').length === 2")
	share := eval[string](b, "[...document.querySelectorAll('table.limits tbody tr')].map((r) => r.cells[0].innerText + ' ' + r.cells[3].innerText).join()")
	if share != "api 13 %,login 0 %" && share != "login 0 %,api 13 %" {
		t.Errorf("of the limits it says %s", share)
	}
	before := eval[string](b, "document.querySelector('canvas').toDataURL()")
	s.take("api", "dave", 40)
	b.until("dave, refused most", rows+"[0]?.startsWith('dave api 100 %')")
	b.until("another picture", fmt.Sprintf("document.querySelector('canvas').toDataURL() !== %q", before))
	b.press("main", "Most used")
	b.until("the most used", rows+".length === 4 && document.body.innerText.includes('Used, 5 min')")
	b.press("main", "1 min")
	b.reads("refused of all in a minute")
	b.press("main", "Pause")
	b.reads("Go on")
	s.take("login", "erin", 3)
	b.press("main", "Go on")
	b.until("erin", rows+".some((r) => r.startsWith('erin login 100 %'))")
	// The view shows the last minute, and a slow machine has taken longer than that for what is above.
	s.take("login", "carol", 1)
	b.clicks("login", "[...document.querySelectorAll('table.limits a')].find((a) => a.innerText === 'login')")
	b.until("one limit", "document.querySelectorAll('table.limits tbody tr').length === 1")
	b.clicks("all limits", "document.querySelector('[aria-label=\"All limits\"]')")
	s.take("api", "alice", 1)
	s.take("login", "carol", 1)
	b.until("all limits", "document.querySelectorAll('table.limits tbody tr').length === 2")
}
