// Package revisiontest checks that a store whose SQL functions have changed has a higher revision: migrate installs the
// functions only then.
package revisiontest

import (
	"fmt"
	"os"
	"testing"
)

// path is the file in the folder of the tested package with the last revision and its fingerprint.
const path = "testdata/revision"

// Check compares a revision and the fingerprint of its texts with those in the file. After a change of the texts, raise
// the revision in schema.go and run the test with UPDATE_REVISION=1, which writes both to the file.
func Check(tb testing.TB, revision int, fingerprint string) {
	tb.Helper()
	current := fmt.Sprintf("%d %s\n", revision, fingerprint)
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var fileRevision int
	var fileFingerprint string
	if _, err := fmt.Sscan(string(b), &fileRevision, &fileFingerprint); err != nil {
		tb.Fatal(err)
	}
	switch {
	case string(b) == current:
	case revision <= fileRevision:
		tb.Errorf("the texts have changed since revision %d: raise revision in schema.go", fileRevision)
	case os.Getenv("UPDATE_REVISION") == "":
		tb.Errorf("%s has revision %d: write the new one with UPDATE_REVISION=1", path, fileRevision)
	default:
		if err := os.WriteFile(path, []byte(current), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}
