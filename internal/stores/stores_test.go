package stores

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestOptionsOfAStoreInMemory(t *testing.T) {
	t.Parallel()
	for storeURL, valid := range map[string]bool{
		"memory:": true, "memory:?max_keys=3": true, "memory:?max_bytes=100000": true, "memory:?max_keys=3&max_bytes=9": true,
		"memory:x": false, "memory:?max_keys=0": false, "memory:?max_bytes=-1": false, "memory:?max_bytes=64MB": false,
		"memory:?max_keys=1&max_keys=2": false, "memory:?keys=3": false,
	} {
		s, err := Open(t.Context(), storeURL, Options{})
		if (err == nil) != valid || err != nil && !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: got %v, want valid %v", storeURL, err, valid)
		}
		if err == nil {
			s.Close()
		}
	}
}

// TestEachTagHasAFile checks that each build tag leaves out the file of its driver.
func TestEachTagHasAFile(t *testing.T) {
	t.Parallel()
	for scheme, tag := range buildTags {
		text, err := os.ReadFile(strings.TrimPrefix(tag, "headgate_no") + ".go")
		if err != nil || !strings.HasPrefix(string(text), "//go:build !"+tag+"\n") {
			t.Errorf("%s: got %v, or its file has no constraint !%s", scheme, err, tag)
		}
	}
}
