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

// Place is where state is kept.
type Place struct {
	URL  string
	Said bool // by somebody: it is not the default
}

// Kind returns the scheme of the URL.
func (p Place) Kind() string {
	kind, _, _ := strings.Cut(p.URL, ":")
	return kind
}

// Prepare makes the folder of the default store, which need not be there yet.
func (p Place) Prepare() error {
	if p.Said || p.Here() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.File()), 0o700); err != nil {
		return fmt.Errorf("%w: the folder of the default store: %w", store.ErrSetup, err)
	}
	return nil
}

// Here reports whether it is the default store of the current folder.
func (p Place) Here() bool { return p.URL == DefaultStore }

// File returns the file of a store of SQLite, empty for other stores.
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

// Missing reports whether it is a file that is not there.
func (p Place) Missing() bool {
	file := p.File()
	if file == "" {
		return false
	}
	_, err := os.Stat(file)
	return err != nil
}

// String leaves out the password.
func (p Place) String() string { return cmp.Or(p.File(), store.RedactURL(p.URL)) }
