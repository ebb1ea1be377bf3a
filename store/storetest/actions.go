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
		t.Fatalf("at first: %+v, %v", list, err)
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
	for _, wrong := range []store.Action{
		{Verb: "take", Limit: "api"}, {Verb: "block", For: -1}, {Verb: "reset", Key: "\xff"},
		{Verb: "reset", Reason: strings.Repeat("r", store.MaxNote+1)},
	} {
		if err := c.RecordAction(t.Context(), wrong); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	before, at := int64(0), int64(math.MaxInt64)
	for i := len(want) - 1; i >= 0; i-- {
		list, err := c.Actions(t.Context(), before, 1)
		if err != nil || len(list) != 1 {
			t.Fatalf("one before %d: %+v, %v", before, list, err)
		}
		a := list[0]
		if a.Number <= 0 || before != 0 && a.Number >= before || a.At <= 0 || a.At > at {
			t.Errorf("number %d at %d, after %d at %d", a.Number, a.At, before, at)
		}
		before, at = a.Number, a.At
		if a.Number, a.At = 0, 0; a != want[i] {
			t.Errorf("got %+v, want %+v", a, want[i])
		}
	}
	if list, err := c.Actions(t.Context(), before, 1); err != nil || len(list) != 0 {
		t.Errorf("before the first: %+v, %v", list, err)
	}
	if list, err := c.Actions(t.Context(), 0, 10); err != nil || len(list) != len(want) {
		t.Errorf("all: %+v, %v", list, err)
	}
	if now, _ := readSince(t, c, 0); now != version {
		t.Errorf("version %d became %d", version, now)
	}
}
