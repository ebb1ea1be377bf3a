package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/store"
)

// Finds fails a test unless Examine has a finding of a check and a severity whose remedy contains a text.
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

// FindsNothing fails a test if Examine has a finding of severity Wrong, except for some checks.
func FindsNothing(t *testing.T, s store.Doctor, except ...string) {
	t.Helper()
	found, err := s.Examine(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, f := range found {
		if f.Severity == store.Wrong && !slices.Contains(except, f.Check) {
			t.Errorf("%+v", f)
		}
	}
	if len(found) < 5 {
		t.Errorf("only %d things were examined", len(found))
	}
}
