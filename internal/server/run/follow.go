package run

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/server/config"
)

// sources are groups of files, such as tokens, certificates and limits for Envoy, which a server reloads when they
// change, and on SIGHUP. They are safe for concurrent use.
type sources []*source

// source is a group of files that are reloaded together.
type source struct {
	name   string
	read   func() (text string, err error) // the text differs if the files have changed
	reload func() error

	mu          sync.Mutex
	loadedText  string // text of the files at the last attempt to reload them; guarded by mu
	checkedText string // text of the files at the last check; guarded by mu
	err         error  // why the last attempt failed; guarded by mu
}

// newSource returns a source of files that the caller itself loads at first.
func newSource(name string, read func() (string, error), reload func() error) *source {
	text, _ := read()
	return &source{name: name, read: read, reload: reload, loadedText: text, checkedText: text}
}

// newFileSource returns a source of named files that the caller has just loaded.
func newFileSource(name string, reload func() error, files ...string) *source {
	return newSource(name, func() (string, error) {
		text, read := textOf(config.ReadFile, files)
		for _, file := range files {
			if _, err := read(file); err != nil {
				return text, err
			}
		}
		return text, nil
	}, reload)
}

// watch reloads changed files until ctx is done, once two checks find the same text: a file may be half written.
func (s sources) watch(ctx context.Context, every time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.check(log, false)
		}
	}
}

// check reloads the files that have changed, or all files if always is set.
func (s sources) check(log *slog.Logger, always bool) {
	for _, source := range s {
		source.check(log, always)
	}
}

// check reloads the files if they have changed and the previous check found the same text, or always.
func (s *source) check(log *slog.Logger, always bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := s.read()
	stable := text == s.checkedText
	s.checkedText = text
	if !always && (text == s.loadedText || !stable) {
		return
	}
	s.loadedText = text
	if s.err = err; s.err == nil {
		s.err = s.reload()
	}
	if s.err != nil {
		log.Error("what was read before stays in force", "files", s.name, "error", s.err)
	} else {
		log.Info("read again", "files", s.name)
	}
}

// Problem returns why files cannot be used; empty: they can.
func (s sources) Problem() string {
	for _, source := range s {
		source.mu.Lock()
		err := source.err
		source.mu.Unlock()
		if err != nil {
			return err.Error()
		}
	}
	return ""
}
