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
	findings, err := s.Examine(t.Context())
	if err != nil {
		t.Errorf("Examine: got %v, want no error", err)
	}
	for _, f := range findings {
		if f.Check == check && f.Severity == severity && strings.Contains(f.Remedy, remedy) {
			return
		}
	}
	t.Errorf("got findings %+v, want %s about %s with the remedy %q", findings, severity, check, remedy)
}

// FindsNothing fails a test if Examine has a finding of severity Wrong, but for some checks, or fewer than 5 findings.
func FindsNothing(t *testing.T, s store.Doctor, except ...string) {
	t.Helper()
	findings, err := s.Examine(t.Context())
	if err != nil {
		t.Errorf("Examine: got %v, want no error", err)
	}
	for _, f := range findings {
		if f.Severity == store.Wrong && !slices.Contains(except, f.Check) {
			t.Errorf("got the finding %+v, want none that is wrong", f)
		}
	}
	if len(findings) < 5 {
		t.Errorf("got %d findings, want 5 at least", len(findings))
	}
}
