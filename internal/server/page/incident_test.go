package page_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/tier"
)

// TestIncident answers with the page the questions that cmd/headgate/testdata/incident.txtar answers with commands.
func TestIncident(t *testing.T) {
	tier.Engines(t)
	useChromium(t)
	s := newPageServer(t, false)
	s.take("api", "mallory", 40)
	s.take("api", "alice", 11)
	s.take("login", "bob", 4)
	b := s.openTab(1280, 900, false)

	b.openView("live", "Live")
	const firstKey = "document.querySelector('table.keys tbody tr a')"
	b.waitFor("who is limited most", firstKey+"?.innerText === 'mallory'")

	b.click("who is limited most", firstKey)
	b.waitHeading("mallory")
	b.waitText("refused now")
	b.waitText("token-bucket 1/1h burst 10")
	b.waitText("passes again")

	// An operator raises the limit of mallory for an hour.
	b.pressButton("[data-limit=api]", "Override…")
	b.typeInto("dialog [name=override]", "token-bucket 1/1h burst 100")
	b.typeInto("dialog [name=for]", "1h")
	b.typeInto("dialog [name=reason]", "a customer that moves")
	b.pressButton("dialog", "Override")
	b.waitText("The override is in force.")
	b.waitDialogClosed()
	apiLimit, _ := headgate.Named("api")
	if d, err := s.limiter.Allow(t.Context(), apiLimit, "mallory"); err != nil || !d.Allowed {
		t.Errorf("after the override: %+v, %v", d, err)
	}

	// An operator blocks a key, and another one looks up who has blocked it.
	b.openView("key/alice", "alice")
	b.pressButton("[data-limit=api]", "Block…")
	b.typeInto("dialog [name=for]", "2h")
	b.typeInto("dialog [name=reason]", "reads every page")
	b.pressButton("dialog", "Block")
	b.waitText("The key is blocked.")
	b.waitDialogClosed()
	b.openView("audit?key=alice", "Audit")
	b.waitText("reads every page")

	// What would another limit have done with the attempts that login has recorded?
	b.openView("limits/login", "login")
	b.click("what if", `[...document.querySelectorAll("main a")].find((a) => a.innerText === "What if it were another?")`)
	b.waitText("4 requests of 1 key (key)")
	b.setField("whatif-limit", "fixed-window 1/1h from-first")
	b.waitFor("by another limit", figures+` === "1 3 1"`)
}

// TestBannerOfAStoreThatIsAway checks that two views have a banner until the store is back.
func TestBannerOfAStoreThatIsAway(t *testing.T) {
	useChromium(t)
	s := newPageServer(t, false)
	b := s.openTab(1280, 900, false)
	b.openView("live", "Live")
	const banner = "document.querySelector('.banner')"
	b.waitFor("nothing is wrong", banner+".hidden")
	s.away.Store(api.NewAway("postgres://db/app", time.Now(), errors.New("connection refused")))
	b.waitFor("the store is away", banner+".innerText.startsWith('The store postgres://db/app is away since')")
	b.openView("limits", "Limits")
	b.waitFor("it is seen in each view", "!"+banner+".hidden && "+banner+".getBoundingClientRect().top >= 0")
	s.away.Store(nil)
	b.waitFor("the store is back", banner+".hidden")
}
