package housetest_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoLongFiles checks that Go files have at most 400 lines, except generated files.
func TestNoLongFiles(t *testing.T) {
	t.Parallel()
	count := 0
	err := filepath.WalkDir("../../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if n := bytes.Count(text, []byte("\n")); n > 400 {
			t.Errorf("%s has %d lines, more than 400", path, n)
		}
		count++
		return err
	})
	if err != nil || count < 300 {
		t.Fatalf("read %d files (%v), want at least 300", count, err)
	}
}
