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

// edits makes versions of the catalog: 2 changes api, 3 has overrides, and the others login.
func (s *served) edits(others int) {
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
	for i := range others {
		login := limit("login", fmt.Sprintf("sliding-log %d/1h history 1d", i+4))
		must(s.limits.Set(s.t.Context(), by, catalog.Definition{Limit: login}))
	}
}

// TestLimits: limits, plans and overrides are there with their bounds; versions can be compared, and rolled back.
func TestLimits(t *testing.T) {
	useChromium(t)
	s := newServed(t, false)
	s.edits(22)
	b := s.open(1280, 900, false)
	b.goes("limits", "Limits")
	for _, text := range []string{
		"version 25", "at worst 12 in one hour", "<i>x</i>", "set by hand", "Plans", "pro",
		"at worst 300 in one second",
		`<img src=x onerror=window.pwned=1>\u0001`, "token-bucket 5/1h burst 50", "team- and all that begins so", "in 3 h ", "VIP",
		"Version 25", "by ann <b>", "<script>window.pwned = 1</script>",
	} {
		b.reads(text)
	}
	if strings.Contains(b.text(), "Version 5\n") {
		t.Error("all versions are there at once")
	}
	b.press(".versions", "Older ones")
	b.reads("~ api = token-bucket 2/1h burst 10")

	// Two versions are compared.
	b.chooses("version-from", "1")
	b.chooses("version-to", "2")
	b.press(".compare", "Compare")
	b.reads("From version 1 to 2")
	b.until("before", `document.querySelector(".difference del")?.textContent.startsWith("token-bucket 1/1h")`)
	b.until("after", `document.querySelector(".difference ins")?.textContent.startsWith("token-bucket 2/1h")`)
	const version = `[...document.querySelectorAll(".version")].find((e) => e.innerText.startsWith("Version 3"))`
	b.clicks("the difference to version 3", version+`?.querySelector("button")`)
	b.reads("From version 3 to 25")

	// An override is removed.
	b.press(".overrides", "Remove")
	b.types("#ask-reason", "no VIP")
	b.press("dialog", "Remove")
	b.closes()
	b.reads("version 26")
	b.until("it is gone", `!document.querySelector(".overrides").innerText.includes("token-bucket 5/1h")`)

	// All is what it was.
	b.press(".versions", "Older ones")
	b.until("the first version", `document.querySelector(".version:last-child strong").innerText === "Version 1"`)
	b.press(".version:last-child", "Roll back to this")
	b.until("what would be changed",
		`document.querySelector("dialog .difference")?.innerText.includes("token-bucket 1/1h burst 10")`)
	b.types("#ask-reason", "all back")
	b.press("dialog", "Roll back")
	b.reads("version 27")
	if l, err := s.limits.Get("api"); err != nil || l.String() != "token-bucket 1/1h burst 10" {
		t.Errorf("%v, %v", l, err)
	}
	list, err := s.limits.History(t.Context(), "", 1)
	if err != nil || list[0].Reason != "all back" {
		t.Errorf("%v, %v", list, err)
	}
	b.press(".versions", "Difference to now")
	b.reads("From version 26 to 27")
	if eval[bool](b, "'pwned' in window || document.querySelector('main script, main img[src=x]') !== null") {
		t.Error("what came from outside is more than text")
	}
}

// TestALimitIsChanged for all its keys by the page.
func TestALimitIsChanged(t *testing.T) {
	useChromium(t)
	s := newServed(t, false)
	b := s.open(1280, 900, false)
	b.expected("status of 400")
	b.goes("limits/search", "search")
	b.press(".head", "Edit…")
	b.reads("A config file defines this limit")
	b.types("dialog [name=limit]", "leaky-bucket 3/")
	b.press("dialog", "Change")
	b.reads("period") // what is wrong with it
	b.types("dialog [name=limit]", "leaky-bucket 3/s capacity 6")
	b.types("dialog [name=reason]", "a sale")
	b.press("dialog", "Change")
	b.closes()
	b.reads("Version 2")
	b.reads("a sale")
	if l, err := s.limits.Get("search"); err != nil || l.String() != "leaky-bucket 3/s capacity 6" {
		t.Errorf("%v, %v", l, err)
	}
}

// TestOneLimit: the view of a limit has its versions only, and rolls back that limit only.
func TestOneLimit(t *testing.T) {
	useChromium(t)
	s := newServed(t, false)
	s.edits(2)
	b := s.open(390, 844, true)
	b.goes("limits/login", "login")
	b.reads("exact: every admitted request") // what the algorithm means
	b.reads("Version 5")
	if strings.Contains(b.text(), "Version 2") {
		t.Error("there is a version that has not changed the limit")
	}
	const version = `[...document.querySelectorAll(".version")].find((e) => e.innerText.startsWith("Version 4"))`
	b.clicks("to roll back to version 4", version+`?.querySelectorAll("button")[1]`)
	b.press("dialog", "Roll back")
	b.reads("Rolled back to version 4")
	b.reads("Version 6")
	for name, want := range map[string]string{"login": "sliding-log 4/1h history 1d", "api": "token-bucket 2/1h burst 10"} {
		if l, err := s.limits.Get(name); err != nil || l.String() != want {
			t.Errorf("%s: %v, %v", name, l, err)
		}
	}
	if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > 390 {
		t.Errorf("the view is %d wide on a phone of 390", wide)
	}
	b.goesOn("limits/nothing", "nothing")
	b.reads("There is no such limit now")
}

// TestReadersChangeNoLimits: a reader sees all and has no button that changes something.
func TestReadersChangeNoLimits(t *testing.T) {
	useChromium(t)
	s := newServed(t, false, auth.Entry{Name: "reader", Role: "read"})
	s.edits(1)
	b := s.open(1280, 900, false)
	b.expected("status of 401")
	b.run(navigate(s.base + "/"))
	b.types("#token", s.tokens["reader"])
	b.press(".signin", "Sign in")
	b.goesOn("limits", "Limits")
	b.reads("Version 4")
	b.reads("VIP")
	for _, text := range []string{"Roll back", "Remove"} {
		if eval[bool](b, fmt.Sprintf(`[...document.querySelectorAll("main button")].some((b) => b.innerText.includes(%q))`, text)) {
			t.Errorf("there is a button %s", text)
		}
	}
}

// TestActionsElsewhere: where admin actions have an address of their own the page has no buttons for them.
func TestActionsElsewhere(t *testing.T) {
	useChromium(t)
	s := newServed(t, true)
	s.take("api", "mallory", 1)
	b := s.open(1280, 900, false)
	b.goes("key/mallory", "mallory")
	b.reads("read only")
}
