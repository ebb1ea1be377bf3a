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
	for url, ok := range map[string]bool{
		"memory:": true, "memory:?max_keys=3": true, "memory:?max_bytes=100000": true, "memory:?max_keys=3&max_bytes=9": true,
		"memory:x": false, "memory:?max_keys=0": false, "memory:?max_bytes=-1": false, "memory:?max_bytes=64MB": false,
		"memory:?max_keys=1&max_keys=2": false, "memory:?keys=3": false,
	} {
		s, err := Open(t.Context(), url, Options{})
		if (err == nil) != ok || err != nil && !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// TestEachTagHasAFile looks for the driver that each build tag leaves out.
func TestEachTagHasAFile(t *testing.T) {
	t.Parallel()
	for scheme, tag := range tags {
		text, err := os.ReadFile(strings.TrimPrefix(tag, "headgate_no") + ".go")
		if err != nil || !strings.HasPrefix(string(text), "//go:build !"+tag+"\n") {
			t.Errorf("%s: %v; its file is not left out by %s", scheme, err, tag)
		}
	}
}
