package storetest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// testActions records actions, and reads them page by page.
func testActions(t *testing.T, s store.Store) {
	c := catalogOf(t, s)
	version, _ := readSince(t, c, 0)
	if list, err := c.Actions(t.Context(), 0, 10); err != nil || len(list) != 0 {
		t.Fatalf("an empty store: got %+v, %v; want no actions", list, err)
	}
	want := []store.Action{
		{Verb: "block", Limit: "api", Key: "b'\\ä\"", For: 3_600_000_000, Author: "alice", Reason: "scans: 'quoted'"},
		{Verb: "unblock", Limit: "api", Key: ""},
		{Verb: "refund", Limit: "api", Key: "k", Author: "bob", Reason: "up to 2.5"},
		{Verb: "reset", Limit: "token-bucket 5/1m burst 5", Key: strings.Repeat("k", law.MaxKey), Author: "bob"},
	}
	for _, a := range want {
		if err := c.RecordAction(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	for _, badAction := range []store.Action{
		{Verb: "take", Limit: "api"},
		{Verb: "block", For: -1},
		{Verb: "reset", Key: "\xff"},
		{Verb: "reset", Reason: strings.Repeat("r", store.MaxNote+1)},
	} {
		if err := c.RecordAction(t.Context(), badAction); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", badAction, err)
		}
	}
	before, at := int64(0), int64(math.MaxInt64)
	for i := len(want) - 1; i >= 0; i-- {
		list, err := c.Actions(t.Context(), before, 1)
		if err != nil || len(list) != 1 {
			t.Fatalf("one action before %d: got %+v, %v", before, list, err)
		}
		a := list[0]
		if a.Number <= 0 || before != 0 && a.Number >= before || a.At <= 0 || a.At > at {
			t.Errorf("got number %d at %d, want them before %d at %d", a.Number, a.At, before, at)
		}
		before, at = a.Number, a.At
		if a.Number, a.At = 0, 0; a != want[i] {
			t.Errorf("got %+v, want %+v", a, want[i])
		}
	}
	if list, err := c.Actions(t.Context(), before, 1); err != nil || len(list) != 0 {
		t.Errorf("before the first: got %+v, %v; want no actions", list, err)
	}
	if list, err := c.Actions(t.Context(), 0, 10); err != nil || len(list) != len(want) {
		t.Errorf("all: got %+v, %v; want %d", list, err, len(want))
	}
	if got, _ := readSince(t, c, 0); got != version {
		t.Errorf("got catalog version %d, want %d: actions are no edits", got, version)
	}
}
