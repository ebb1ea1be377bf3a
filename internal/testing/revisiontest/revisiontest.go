// Package revisiontest checks that a store whose functions have changed has a higher
// revision, without which migrate would not install them.
package revisiontest

import (
	"fmt"
	"os"
	"testing"
)

// path is the file in the folder of the tested package with the last revision and its
// fingerprint.
const path = "testdata/revision"

// Check compares a revision and the fingerprint of its texts with those written down. After
// a change of the texts, raise the revision in schema.go and run the test with
// UPDATE_REVISION=1, which writes both down.
func Check(tb testing.TB, revision int, fingerprint string) {
	tb.Helper()
	now := fmt.Sprintf("%d %s\n", revision, fingerprint)
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var last int
	var of string
	if _, err := fmt.Sscan(string(b), &last, &of); err != nil {
		tb.Fatal(err)
	}
	switch {
	case string(b) == now:
	case revision <= last:
		tb.Errorf("the texts have changed since revision %d: raise revision in schema.go", last)
	case os.Getenv("UPDATE_REVISION") == "":
		tb.Errorf("%s has revision %d: write the new one with UPDATE_REVISION=1", path, last)
	default:
		if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}
