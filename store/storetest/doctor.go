package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/store"
)

// Finds fails a test unless a store finds something of a severity about a thing, with a remedy that contains a
// text.
func Finds(t *testing.T, s store.Doctor, severity store.Severity, check, remedy string) {
	t.Helper()
	found, err := s.Examine(t.Context())
	if err != nil {
		t.Errorf("%s: %v", check, err)
	}
	for _, f := range found {
		if f.Check == check && f.Severity == severity && strings.Contains(f.Remedy, remedy) {
			return
		}
	}
	t.Errorf("%s is not found to be %s, to do %q: %+v", check, severity, remedy, found)
}

// FindsNothing fails a test if a store finds that something is wrong, but for the checks that are named.
func FindsNothing(t *testing.T, s store.Doctor, but ...string) {
	t.Helper()
	found, err := s.Examine(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, f := range found {
		if f.Severity == store.Wrong && !slices.Contains(but, f.Check) {
			t.Errorf("%+v", f)
		}
	}
	if len(found) < 5 {
		t.Errorf("only %d things were examined", len(found))
	}
}
