package page_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/auth"
)

// editCatalog makes versions of the catalog: 2 changes api, 3 adds overrides, and loginEdits more change login.
func (s *pageServer) editCatalog(loginEdits int) {
	s.t.Helper()
	by := catalog.By{Author: "ann <b>", Reason: "<script>window.pwned = 1</script>"}
	limit := func(name, text string) headgate.Limit {
		l, err := headgate.ParseNamed(name, text)
		if err != nil {
			s.t.Fatal(err)
		}
		return l
	}
	must := func(_ int64, err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	must(s.limits.Set(s.t.Context(), by,
		catalog.Definition{Limit: limit("api", "token-bucket 2/1h burst 10"), Description: "<i>x</i>"}))
	must(s.limits.Override(s.t.Context(), by,
		catalog.Override{Limit: limit("api", "token-bucket 5/1h burst 50"), Key: "<img src=x onerror=window.pwned=1>\x01", Reason: "VIP"},
		catalog.Override{Limit: limit("api", "token-bucket 7/1h burst 70"), Key: "team-", Prefix: true, Until: s.limits.Now().Add(210 * time.Minute)}))
	for i := range loginEdits {
		login := limit("login", fmt.Sprintf("sliding-log %d/1h history 1d", i+4))
		must(s.limits.Set(s.t.Context(), by, catalog.Definition{Limit: login}))
	}
}

// TestLimits checks that the view shows the catalog, compares its versions, removes an override, and rolls back.
func TestLimits(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	s.editCatalog(22)
	b := s.openTab(1280, 900, false)
	b.openView("limits", "Limits")
	for _, text := range []string{
		"version 25", "at worst 12 in one hour", "<i>x</i>", "set by hand", "Plans", "pro",
		"at worst 300 in one second",
		`<img src=x onerror=window.pwned=1>\u0001`, "token-bucket 5/1h burst 50", "team- and all that begins so", "in 3 h ", "VIP",
		"Version 25", "by ann <b>", "<script>window.pwned = 1</script>",
	} {
		b.waitText(text)
	}
	if strings.Contains(b.text(), "Version 5\n") {
		t.Error("version 5 is listed before the older versions were requested")
	}
	b.pressButton(".versions", "Older ones")
	b.waitText("~ api = token-bucket 2/1h burst 10")

	// Compare two versions.
	b.selectOption("version-from", "1")
	b.selectOption("version-to", "2")
	b.pressButton(".compare", "Compare")
	b.waitText("From version 1 to 2")
	b.waitFor("before", `document.querySelector(".difference del")?.textContent.startsWith("token-bucket 1/1h")`)
	b.waitFor("after", `document.querySelector(".difference ins")?.textContent.startsWith("token-bucket 2/1h")`)
	const version = `[...document.querySelectorAll(".version")].find((e) => e.innerText.startsWith("Version 3"))`
	b.click("the difference to version 3", version+`?.querySelector("button")`)
	b.waitText("From version 3 to 25")

	// Remove an override.
	b.pressButton(".overrides", "Remove")
	b.typeInto("#ask-reason", "no VIP")
	b.pressButton("dialog", "Remove")
	b.waitDialogClosed()
	b.waitText("version 26")
	b.waitFor("it is gone", `!document.querySelector(".overrides").innerText.includes("token-bucket 5/1h")`)

	// Roll back everything.
	b.pressButton(".versions", "Older ones")
	b.waitFor("the first version", `document.querySelector(".version:last-child strong").innerText === "Version 1"`)
	b.pressButton(".version:last-child", "Roll back to this")
	b.waitFor("what would be changed",
		`document.querySelector("dialog .difference")?.innerText.includes("token-bucket 1/1h burst 10")`)
	b.typeInto("#ask-reason", "all back")
	b.pressButton("dialog", "Roll back")
	b.waitText("version 27")
	if l, err := s.limits.Get("api"); err != nil || l.String() != "token-bucket 1/1h burst 10" {
		t.Errorf("api: got %v, %v, want token-bucket 1/1h burst 10", l, err)
	}
	list, err := s.limits.History(t.Context(), "", 1)
	if err != nil || list[0].Reason != "all back" {
		t.Errorf("got %v, %v, want a version with the reason", list, err)
	}
	b.pressButton(".versions", "Difference to now")
	b.waitText("From version 26 to 27")
	if eval[bool](b, "'pwned' in window || document.querySelector('main script, main img[src=x]') !== null") {
		t.Error("a key, a reason or an author became HTML")
	}
}

// TestALimitIsChanged checks that the page changes a limit for all keys.
func TestALimitIsChanged(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	b := s.openTab(1280, 900, false)
	b.allowLog("status of 400")
	b.openView("limits/search", "search")
	b.pressButton(".head", "Edit…")
	b.waitText("A config file defines this limit")
	b.typeInto("dialog [name=limit]", "leaky-bucket 3/")
	b.pressButton("dialog", "Change")
	b.waitText("period") // a part of the error
	b.typeInto("dialog [name=limit]", "leaky-bucket 3/s capacity 6")
	b.typeInto("dialog [name=reason]", "a sale")
	b.pressButton("dialog", "Change")
	b.waitDialogClosed()
	b.waitText("Version 2")
	b.waitText("a sale")
	if l, err := s.limits.Get("search"); err != nil || l.String() != "leaky-bucket 3/s capacity 6" {
		t.Errorf("search: got %v, %v, want leaky-bucket 3/s capacity 6", l, err)
	}
	if _, err := s.limits.Rename(t.Context(), catalog.By{}, "search", "find"); err != nil {
		t.Fatal(err)
	}
	b.switchView("limits/find", "search")
	b.waitText("renamed to find")
	b.pressButton(".head", "Edit…")
	b.typeInto("dialog [name=limit]", "leaky-bucket 4/s capacity 6")
	b.pressButton("dialog", "Change")
	b.waitDialogClosed()
	b.waitText("Version 4")
	if l, err := s.limits.Get("search"); err != nil || l.String() != "leaky-bucket 4/s capacity 6" {
		t.Errorf("after the rename: got %v, %v, want leaky-bucket 4/s capacity 6", l, err)
	}
}

// TestOneLimit checks that the view of a limit has only its versions, and rolls back only the limit.
func TestOneLimit(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	s.editCatalog(2)
	b := s.openTab(390, 844, true)
	b.openView("limits/login", "login")
	b.waitText("exact: every admitted request") // a part of the description of the algorithm
	b.waitText("Version 5")
	if strings.Contains(b.text(), "Version 2") {
		t.Error("version 2 is listed, which has not changed the limit")
	}
	const version = `[...document.querySelectorAll(".version")].find((e) => e.innerText.startsWith("Version 4"))`
	b.click("to roll back to version 4", version+`?.querySelectorAll("button")[1]`)
	b.pressButton("dialog", "Roll back")
	b.waitText("Rolled back to version 4")
	b.waitText("Version 6")
	for name, want := range map[string]string{"login": "sliding-log 4/1h history 1d", "api": "token-bucket 2/1h burst 10"} {
		if l, err := s.limits.Get(name); err != nil || l.String() != want {
			t.Errorf("%s: got %v, %v, want %s", name, l, err, want)
		}
	}
	if width := eval[int64](b, "document.documentElement.scrollWidth"); width > 390 {
		t.Errorf("the view is %d wide on a phone of 390", width)
	}
	b.switchView("limits/nothing", "nothing")
	b.waitText("There is no such limit now")
}

// TestReadersChangeNoLimits checks that a reader sees everything, and has no button that changes it.
func TestReadersChangeNoLimits(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false, auth.Entry{Name: "reader", Role: "read"})
	s.editCatalog(1)
	b := s.openTab(1280, 900, false)
	b.allowLog("status of 401")
	b.run(navigate(s.base + "/"))
	b.typeInto("#token", s.tokens["reader"])
	b.pressButton(".signin", "Sign in")
	b.switchView("limits", "Limits")
	b.waitText("Version 4")
	b.waitText("VIP")
	for _, text := range []string{"Roll back", "Remove"} {
		if eval[bool](b, fmt.Sprintf(`[...document.querySelectorAll("main button")].some((b) => b.innerText.includes(%q))`, text)) {
			t.Errorf("there is a button %s", text)
		}
	}
}

// TestAKeyIsReadOnlyWhereActionsAreElsewhere checks the view of a key if admin actions have an address of their own.
func TestAKeyIsReadOnlyWhereActionsAreElsewhere(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, true)
	s.take("api", "mallory", 1)
	b := s.openTab(1280, 900, false)
	b.openView("key/mallory", "mallory")
	b.waitText("read only")
	if n := b.actionCount(); n != 0 {
		t.Errorf("there are %d buttons", n)
	}
}
