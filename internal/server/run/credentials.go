package run

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/server/config"
)

// credentials are files of tokens and certificates, which a server reads again when they are changed,
// and on SIGHUP. They are safe for concurrent use.
type credentials []*credential

// credential is what is read out of some files.
type credential struct {
	name   string
	files  []string
	reload func() error

	mu   sync.Mutex
	text string // of the files, as they were read last; guarded by mu
	seen string // as they were at the last look; guarded by mu
	err  error  // why they cannot be used; guarded by mu
}

// newCredential is of files that have just been read.
func newCredential(name string, reload func() error, files ...string) *credential {
	text, _ := textOf(config.ReadFile, files)
	return &credential{name: name, files: files, reload: reload, text: text, seen: text}
}

// follow reads files again when they are changed, until ctx is done. A change counts when two looks
// have found the same text: the first may have come while the file was being written.
func (c credentials) follow(ctx context.Context, every time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.look(log, false)
		}
	}
}

// look reads the files again that were changed, or all.
func (c credentials) look(log *slog.Logger, all bool) {
	for _, one := range c {
		one.look(log, all)
	}
}

func (c *credential) look(log *slog.Logger, always bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, read := textOf(config.ReadFile, c.files)
	settled := text == c.seen
	c.seen = text
	if !always && (text == c.text || !settled) {
		return
	}
	c.text = text
	if c.err = readable(c.files, read); c.err == nil {
		c.err = c.reload()
	}
	if c.err != nil {
		log.Error("what was read before stays in force", "files", c.name, "error", c.err)
	} else {
		log.Info("read again", "files", c.name)
	}
}

// readable returns why one of the files cannot be read, as textOf has found.
func readable(files []string, read func(string) ([]byte, error)) error {
	for _, file := range files {
		if _, err := read(file); err != nil {
			return err
		}
	}
	return nil
}

// Problem says why files cannot be used; empty: they can.
func (c credentials) Problem() string {
	for _, one := range c {
		one.mu.Lock()
		err := one.err
		one.mu.Unlock()
		if err != nil {
			return err.Error()
		}
	}
	return ""
}
