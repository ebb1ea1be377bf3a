// Package storetest is the suite that every store passes, drivers and wrappers alike.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) store.Store { ... }, nil)
//	}
//
// HEADGATE_TEST_HISTORIES sets the number of random batches that Run compares (see Options.Histories), and
// HEADGATE_TEST_SEED selects them: the same ones on every store.
//
// Promises to callers hold for a store alone, and for a store behind the wrappers of headgate serve. With make engines
// and make nightly, Run also tests the store behind these wrappers, and the wrappers over a store that fails (see
// package tier). With make test, package front runs the suite through all wrappers.
//
// Add a case here for a bug fixed in one store. Cases of a single cell belong to the tests of package law: the random
// histories show that a store decides as package law does. Op.Now injects the time wherever a decision depends on it,
// so nothing sleeps for a refill.
package storetest

import (
	"cmp"
	"os"
	"strconv"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
)

// Options adjust the suite. Nil, and every zero field, is fine.
type Options struct {
	// Histories is the number of random batches to compare with package law; half as many more are of plain charges.
	// Zero: 150 with make test, else 2000.
	Histories int
	// SelfExpiring says that the store itself removes cells by its clock, and that Sweep need not remove any.
	SelfExpiring bool
	// GroupsOnTrial says that the store charges a request whose keys are on several nodes one by one, and refunds the
	// charges when one is refused. Outcomes may differ in detail, and a refused request may stay charged if others came
	// between. Histories then have one key, and a level may include refused charges. A reservation of such keys that
	// may start later has to fail with store.ErrUnsupported, and charge nothing.
	GroupsOnTrial bool
}

// Open returns a store, which the suite closes. It is empty unless said otherwise.
type Open func(tb testing.TB) store.Store

func (o *Options) withDefaults() *Options {
	opts := *cmp.Or(o, &Options{})
	opts.Histories = cmp.Or(opts.Histories, tier.Pick(150, 2000, 2000))
	return &opts
}

// runner runs a subtest on a store.
type runner func(name string, test func(t *testing.T, s store.Store))

// onOwnStore returns a runner that opens a store for each subtest.
func onOwnStore(t *testing.T, open Open) runner {
	return func(name string, test func(t *testing.T, s store.Store)) {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() { s.Close() })
			test(t, s)
		})
	}
}

// RunHistories runs the random histories alone, which cover every verb and law. It ignores HEADGATE_TEST_HISTORIES.
func RunHistories(t *testing.T, open Open, o *Options) {
	testHistories(onOwnStore(t, open), o.withDefaults())
}

func testHistories(with runner, o *Options) {
	with("decides as package law does, bit by bit",
		func(t *testing.T, s store.Store) { testModel(t, s, o.Histories, o, (*generator).batch) })
	with("decides batches of plain charges as package law does",
		func(t *testing.T, s store.Store) { testModel(t, s, o.Histories/2, o, (*generator).plainBatch) })
}

// Run runs the suite.
func Run(t *testing.T, open Open, o *Options) {
	o = o.withDefaults()
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_HISTORIES")); err == nil {
		o.Histories = n
	}
	with := onOwnStore(t, open)
	alsoWrapped := func(name string, test func(t *testing.T, s store.Store)) {
		with(name, test)
		if tier.Current() == tier.OfTest {
			return
		}
		with(name+", through the whole stack", func(t *testing.T, s store.Store) {
			s = stack(s)
			t.Cleanup(func() { s.Close() })
			test(t, s)
		})
	}
	testHistories(with, o)
	alsoWrapped("admits exactly the capacity to concurrent callers of a new key", testFirstCharge)
	alsoWrapped("admits no more than the rate to concurrent callers of an old key", testContendedKey)
	with("admits groups all or none, without deadlock",
		func(t *testing.T, s store.Store) { testOverlappingGroups(t, s, o.GroupsOnTrial) })
	with("is linearizable", testLinearizable)
	with("charges one of many with the same id", testConcurrentRetries)
	alsoWrapped("charges requests of several cells once, and settles parts of them", testIDsOfSeveralCells)
	with("knows an id that many keys have used", testIDsOfManyKeys)
	alsoWrapped("drains budgets of six limits exactly", testBudgets)
	with("extends what another rule has charged", testExtendOtherRule)
	alsoWrapped("extends requests of several cells all or none", testExtendSeveral)
	with("gives nothing back to a cell of another rule", testSettleOtherRule)
	alsoWrapped("charges whatever the level", testDebit)
	with("starts all keys of a reservation together, or none",
		func(t *testing.T, s store.Store) { testStartTogether(t, s, o.GroupsOnTrial) })
	with("decides a reservation again for a caller that does not wait", testReserveWithoutWait)
	with("charges the first alternative that has room, and nothing of the others",
		func(t *testing.T, s store.Store) { testAlternatives(t, s, o.GroupsOnTrial) })
	alsoWrapped("drains a plan, and then credits", testDrainByAlternatives)
	with("charges a cell once after a reset in a batch", testResetInBatch)
	alsoWrapped("holds, renews and releases leases", testLeases)
	alsoWrapped("keeps keys apart byte by byte", testKeys)
	alsoWrapped("refuses bad keys alike", testBadKeys)
	with("takes keys, ids and reasons for what they are", testTexts)
	with("lets an invalid group fail alone", testInvalidGroup)
	with("sweeps what cannot matter, and nothing else",
		func(t *testing.T, s store.Store) { testSweep(t, s, o.SelfExpiring) })
	with("sweeps under load without changing a decision", testSweepUnderLoad)
	if tier.Current() > tier.OfTest {
		with("admits nobody when it fails", func(t *testing.T, s store.Store) {
			runFailing(t, func(t *testing.T, test func(t *testing.T, s store.Store)) { test(t, s) })
		})
	}
	with("does nothing for a cancelled context", testCancelledContext)
	with("refuses to work once closed", testClosedStore)
	with("shows its cells and its log", testInspect)
	with("refuses bad queries alike", testBadQueries)
	alsoWrapped("keeps a catalog", testCatalog)
	with("tells what versions of the catalog have changed", testCatalogChanges)
	with("lists items of the catalog in order", testItemsInOrder)
	with("keeps actions", testActions)
	with("refuses edits of the catalog, and changes nothing", testBadEdits)
	with("makes one version of the catalog at a time", testConcurrentEdits)
}
