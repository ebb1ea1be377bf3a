package page_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/tier"
)

// TestIncident answers the questions of an incident by the page. cmd/headgate/testdata/incident.txtar answers them
// by commands.
func TestIncident(t *testing.T) {
	tier.Engines(t)
	useChromium(t)
	s := newServed(t, false)
	s.take("api", "mallory", 40)
	s.take("api", "alice", 11)
	s.take("login", "bob", 4)
	b := s.open(1280, 900, false)

	b.goes("live", "Live")
	const first = "document.querySelector('table.keys tbody tr a')"
	b.until("who is limited most", first+"?.innerText === 'mallory'")

	b.clicks("who is limited most", first)
	b.shows("mallory")
	b.reads("refused now")
	b.reads("token-bucket 1/1h burst 10")
	b.reads("passes again")

	// Its limit is raised for an hour.
	b.press("[data-limit=api]", "Override…")
	b.types("dialog [name=override]", "token-bucket 1/1h burst 100")
	b.types("dialog [name=for]", "1h")
	b.types("dialog [name=reason]", "a customer that moves")
	b.press("dialog", "Override")
	b.reads("The override is in force.")
	b.closes()
	api, _ := headgate.Named("api")
	if d, err := s.limiter.Allow(t.Context(), api, "mallory"); err != nil || !d.Allowed {
		t.Errorf("after the override: %+v, %v", d, err)
	}

	// Somebody blocks a key, and somebody else asks who has.
	b.goes("key/alice", "alice")
	b.press("[data-limit=api]", "Block…")
	b.types("dialog [name=for]", "2h")
	b.types("dialog [name=reason]", "reads every page")
	b.press("dialog", "Block")
	b.reads("The key is blocked.")
	b.closes()
	b.goes("audit?key=alice", "Audit")
	b.reads("reads every page")

	// What would another limit have done to what login has recorded?
	b.goes("limits/login", "login")
	b.clicks("what if", `[...document.querySelectorAll("main a")].find((a) => a.innerText === "What if it were another?")`)
	b.reads("4 requests of 1 key (key)")
	b.writes("whatif-limit", "fixed-window 1/1h from-first")
	b.until("by another limit", figures+` === "1 3 1"`)
}

// TestTheStoreIsAway: every view says so on top, until the store is back.
func TestTheStoreIsAway(t *testing.T) {
	useChromium(t)
	s := newServed(t, false)
	b := s.open(1280, 900, false)
	b.goes("live", "Live")
	const banner = "document.querySelector('.banner')"
	b.until("nothing is wrong", banner+".hidden")
	s.away.Store(api.NewAway("postgres://db/app", time.Now(), errors.New("connection refused")))
	b.until("the store is away", banner+".innerText.startsWith('The store postgres://db/app is away since')")
	b.goes("limits", "Limits")
	b.until("it is seen in each view", "!"+banner+".hidden && "+banner+".getBoundingClientRect().top >= 0")
	s.away.Store(nil)
	b.until("the store is back", banner+".hidden")
}
