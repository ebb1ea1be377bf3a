package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/store"
)

// file identifies the files that a store has open, to notice when their paths name others. A file that was deleted or
// replaced still works for the processes that have it open. A process that opens the path later gets another file, and
// the limits are counted twice.
type file struct {
	parts []part
}

// part is the database or its write-ahead log.
type part struct {
	path string
	info os.FileInfo // of the file at the time of opening
}

// addDatabase adds the files of a database that was just opened.
func (f *file) addDatabase(path string) error {
	path, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return err
	}
	if err := f.add(path); err != nil {
		return err
	}
	// SQLite keeps the log beside the file itself, wherever links point.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	if err := f.add(path + "-wal"); err != nil && !os.IsNotExist(err) { // not all file systems can have one
		return err
	}
	return nil
}

// add adds the file that a path names now.
func (f *file) add(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	_ = os.SameFile(info, info) // Windows finds out which file it is when it is first asked
	f.parts = append(f.parts, part{path, info})
	return nil
}

// privateMode is the mode of a new file. SQLite gives its log and its index the same mode.
const privateMode = 0o600

// makePrivate makes an empty file, which is an empty database, if there is none. One that SQLite makes is not private.
func makePrivate(path string) error {
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		return nil // SQLite says what is wrong with it, if something is
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, privateMode)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(privateMode), f.Close()) // the umask may have taken away more
}

// check returns an error if one of the files is missing or was replaced by another. It takes about a microsecond for
// each file, much less than a commit.
func (f *file) check() error {
	for _, p := range f.parts {
		current, err := os.Stat(p.path)
		if err != nil {
			return fmt.Errorf("%w: it is open here, but cannot be found any more; put it back, or restart: %w",
				store.ErrUnavailable, err)
		}
		if !os.SameFile(p.info, current) {
			return fmt.Errorf("%w: %s was replaced while it was open here; restart", store.ErrUnavailable, p.path)
		}
	}
	return nil
}
