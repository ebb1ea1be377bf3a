package config

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/store"
)

// Place is a store, where a server keeps its state.
type Place struct {
	URL        string
	Configured bool // the URL was configured, and is not the default
}

// Kind returns the scheme of the URL.
func (p Place) Kind() string {
	kind, _, _ := strings.Cut(p.URL, ":")
	return kind
}

// Prepare makes the folder of the default store if it does not exist. It does nothing for a store that was configured.
func (p Place) Prepare() error {
	if p.Configured || p.InCurrentFolder() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.File()), 0o700); err != nil {
		return fmt.Errorf("%w: the folder of the default store: %w", store.ErrSetup, err)
	}
	return nil
}

// InCurrentFolder reports whether the store is the default one in the current folder.
func (p Place) InCurrentFolder() bool { return p.URL == DefaultStore }

// File returns the file of an SQLite store; empty: another store.
func (p Place) File() string {
	path, isFile := strings.CutPrefix(p.URL, "sqlite:")
	path, _, _ = strings.Cut(strings.TrimPrefix(path, "//"), "?")
	path, err := url.PathUnescape(path)
	if !isFile || err != nil || path == "" || path == ":memory:" {
		return ""
	}
	if whole, err := filepath.Abs(filepath.FromSlash(path)); err == nil {
		return whole
	}
	return path
}

// Missing reports whether the store is a file that cannot be found.
func (p Place) Missing() bool {
	file := p.File()
	if file == "" {
		return false
	}
	_, err := os.Stat(file)
	return err != nil
}

// String returns the file or the URL, without a password.
func (p Place) String() string { return cmp.Or(p.File(), store.RedactURL(p.URL)) }
