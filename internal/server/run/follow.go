package run

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/server/config"
)

// followed are the files of tokens, of certificates and of limits for Envoy, which a server reads again when they are
// changed, and on SIGHUP. They are safe for concurrent use.
type followed []*source

// source is what is read out of some files.
type source struct {
	name   string
	read   func() (text string, err error) // to see a change; the error says why they cannot be read
	reload func() error

	mu   sync.Mutex
	text string // of the files, as they were read last; guarded by mu
	seen string // as they were at the last look; guarded by mu
	err  error  // why they cannot be used; guarded by mu
}

// newSource is of files that have just been read, or are next.
func newSource(name string, read func() (string, error), reload func() error) *source {
	text, _ := read()
	return &source{name: name, read: read, reload: reload, text: text, seen: text}
}

// newCredential is a source of files that have just been read.
func newCredential(name string, reload func() error, files ...string) *source {
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

// follow reads files again when they are changed, until ctx is done. A change counts when two looks
// have found the same text: the first may have come while the file was being written.
func (f followed) follow(ctx context.Context, every time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.look(log, false)
		}
	}
}

// look reads the files again that were changed, or all.
func (f followed) look(log *slog.Logger, all bool) {
	for _, one := range f {
		one.look(log, all)
	}
}

func (s *source) look(log *slog.Logger, always bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := s.read()
	settled := text == s.seen
	s.seen = text
	if !always && (text == s.text || !settled) {
		return
	}
	s.text = text
	if s.err = err; s.err == nil {
		s.err = s.reload()
	}
	if s.err != nil {
		log.Error("what was read before stays in force", "files", s.name, "error", s.err)
	} else {
		log.Info("read again", "files", s.name)
	}
}

// Problem says why files cannot be used; empty: they can.
func (f followed) Problem() string {
	for _, one := range f {
		one.mu.Lock()
		err := one.err
		one.mu.Unlock()
		if err != nil {
			return err.Error()
		}
	}
	return ""
}
