// Package authtest opens files of tokens for tests.
package authtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/server/auth"
)

// Open writes a file of callers with a new token for each, and opens it. It also returns the tokens by caller's name.
func Open(tb testing.TB, callers ...auth.Entry) (file *auth.File, tokens map[string]string) {
	tb.Helper()
	tokens = make(map[string]string, len(callers))
	for i := range callers {
		c := &callers[i]
		tokens[c.Name] = auth.NewToken()
		c.Hashes = append(c.Hashes, auth.Hash(tokens[c.Name]))
	}
	text, err := auth.FileText(callers)
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	if file, err = auth.Open(path); err != nil {
		tb.Fatal(err)
	}
	return file, tokens
}
