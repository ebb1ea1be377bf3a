package housetest_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoLongFiles finds Go files above 400 lines, except generated ones.
func TestNoLongFiles(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir("../../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if n := bytes.Count(text, []byte("\n")); n > 400 {
			t.Errorf("%s has %d lines, more than 400", path, n)
		}
		seen++
		return err
	})
	if err != nil || seen < 300 {
		t.Fatalf("%d files were looked at (%v)", seen, err)
	}
}
