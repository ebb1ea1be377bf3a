// Package storetest is the suite that every store passes, drivers and
// wrappers alike.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) store.Store { ... }, nil)
//	}
//
// HEADGATE_TEST_HISTORIES sets how many random histories Run compares, and
// HEADGATE_TEST_SEED which: the same on every store.
//
// A promise to callers holds for the store alone, and through the wrappers that headgate serve puts in front of it.
// With make engines and make nightly, Run tests the latter, and wrappers over a store that fails (see package tier).
// With make test, package front runs the suite through all wrappers.
//
// A bug fixed in one store adds its case here. Cases of a single cell belong to the tests of package law: the random
// histories show that a store decides the same. Times are injected by Op.Now wherever a decision depends on them, so
// nothing sleeps for a refill.
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
	// Histories is how many random batches are compared with package law.
	// Zero: 150 with make test, else 2000.
	Histories int
	// SelfExpiring says that the store itself removes cells by its clock, and that Sweep need not remove any.
	SelfExpiring bool
	// GroupsOnTrial says that the store takes a request whose keys lie apart on trial and gives it back when it is
	// refused. Its outcome may differ in detail, and a refused one may stay charged where others came between.
	// Histories then have one key, and a level may exceed what was admitted by what was refused. A reservation of
	// such keys that may start later has to be store.ErrUnsupported, with nothing charged.
	GroupsOnTrial bool
}

// Open returns a store, to be closed by the suite. It is empty unless said otherwise.
type Open func(tb testing.TB) store.Store

func (o *Options) withDefaults() *Options {
	var mine Options
	if o != nil {
		mine = *o
	}
	mine.Histories = cmp.Or(mine.Histories, tier.Pick(150, 2000, 2000))
	return &mine
}

type subtest func(name string, test func(t *testing.T, s store.Store))

func onOwnStore(t *testing.T, open Open) subtest {
	return func(name string, test func(t *testing.T, s store.Store)) {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() { s.Close() })
			test(t, s)
		})
	}
}

// RunHistories runs the random histories alone, which cover every verb under every law. It ignores
// HEADGATE_TEST_HISTORIES.
func RunHistories(t *testing.T, open Open, o *Options) {
	histories(onOwnStore(t, open), o.withDefaults())
}

func histories(with subtest, o *Options) {
	with("decides as package law does, bit by bit",
		func(t *testing.T, s store.Store) { model(t, s, o.Histories, o, (*generator).batch) })
	with("decides batches of plain charges as package law does",
		func(t *testing.T, s store.Store) { model(t, s, o.Histories/2, o, (*generator).charges) })
}

// Run runs the suite.
func Run(t *testing.T, open Open, o *Options) {
	o = o.withDefaults()
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_HISTORIES")); err == nil {
		o.Histories = n
	}
	with := onOwnStore(t, open)
	through := func(name string, test func(t *testing.T, s store.Store)) {
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
	histories(with, o)
	through("admits exactly the capacity to concurrent callers of a new key", testFirstCharge)
	through("admits no more than the rate to concurrent callers of an old key", testContendedKey)
	with("admits groups all or none, without deadlock",
		func(t *testing.T, s store.Store) { testOverlappingGroups(t, s, o.GroupsOnTrial) })
	with("is linearizable", linearizable)
	with("charges one of many with the same id", sameIDAtOnce)
	through("charges requests of several cells once, and settles parts of them", idsOfSeveralCells)
	with("knows an id that many keys have used", idsOfManyKeys)
	through("drains budgets of six limits exactly", budgets)
	with("extends what another rule has charged", extendParts)
	through("extends requests of several cells all or none", extendSeveral)
	with("gives nothing back to a cell of another rule", settleOtherRule)
	through("charges whatever the level", debit)
	with("starts all keys of a reservation together, or none",
		func(t *testing.T, s store.Store) { startTogether(t, s, o.GroupsOnTrial) })
	with("decides a reservation again for a caller that does not wait", reserveWithoutWait)
	with("charges a cell once after a reset in a batch", afterReset)
	through("holds, renews and releases leases", leases)
	through("keeps keys apart byte by byte", keys)
	through("refuses bad keys alike", badKeys)
	with("takes keys, ids and reasons for what they are", texts)
	with("lets an invalid group fail alone", invalidGroup)
	with("sweeps what cannot matter, and nothing else",
		func(t *testing.T, s store.Store) { sweep(t, s, o.SelfExpiring) })
	with("sweeps under load without changing a decision", sweepUnderLoad)
	if tier.Current() > tier.OfTest {
		with("admits nobody when it fails", func(t *testing.T, s store.Store) {
			failing(t, func(t *testing.T, test func(t *testing.T, s store.Store)) { test(t, s) })
		})
	}
	with("does nothing for a cancelled context", cancelled)
	with("refuses to work once closed", closed)
	with("shows its cells and its log", inspect)
	with("refuses bad queries alike", badQueries)
	through("keeps a catalog", catalog)
	with("tells what versions of the catalog have changed", catalogChanges)
	with("lists items of the catalog in order", catalogInOrder)
	with("keeps actions", actionsAreKept)
	with("refuses edits of the catalog, and changes nothing", catalogRefuses)
	with("makes one version of the catalog at a time", catalogWriters)
}
