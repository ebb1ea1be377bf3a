package main

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/tlsconf"
)

// accessOf reads the settings that say who is let in.
func (o *serving) accessOf(given config.Flags) (err error) {
	r := o.config.Reader(given)
	o.grpc, o.resp = r.Text(config.GRPC), r.Text(config.RESP)
	o.admin, o.metrics = r.Text(config.Admin), r.Text(config.Metrics)
	tokens := r.Text(config.Tokens)
	files := tlsconf.ServerFiles{
		Cert: r.Text(config.TLSCert), Key: r.Text(config.TLSKey), ClientCA: r.Text(config.TLSClientCA),
		Optional: tokens != "",
	}
	open := r.Bool(config.Open)
	switch {
	case r.Err != nil:
		return r.Err
	case open && tokens != "":
		return headgate.Invalid(config.Open.Name, "stands beside %s; say one or the other", config.Tokens.Name)
	case (files.Cert == "") != (files.Key == ""):
		return headgate.Invalid(config.TLSCert.Name, "and %s stand together", config.TLSKey.Name)
	case files.ClientCA != "" && files.Cert == "":
		return headgate.Invalid(config.TLSClientCA.Name, "needs %s and %s", config.TLSCert.Name, config.TLSKey.Name)
	}
	o.everyone, o.clientCA = open, files.ClientCA != ""
	if tokens != "" {
		if o.tokens, err = auth.Open(tokens); err != nil {
			return err
		}
		o.rest.Tokens = o.tokens
		o.credentials = append(o.credentials, newCredential(tokens, o.tokens.Reload, tokens))
	}
	if files.Cert != "" {
		if o.tls, err = tlsconf.NewServer(files); err != nil {
			return err
		}
		o.credentials = append(o.credentials, newCredential("the TLS files", o.tls.Reload, o.tls.Files()...))
	}
	return nil
}

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
	text, _ := textOf(files)
	return &credential{name: name, files: files, reload: reload, text: text, seen: text}
}

// follow reads files again when they are changed, until ctx is done. A change counts when two looks
// have found the same text: the first may have come while the file was being written.
func (c credentials) follow(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(reloadEvery)
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
	text, read := textOf(c.files)
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

// logAction logs an admin action: what was done to which key, by which caller, and why.
func logAction(log *slog.Logger, a service.AdminAction) {
	by := cmp.Or(a.Caller, "a caller without a name")
	args := []any{"verb", a.Verb, "limit", a.Limit, "key", a.Key, "by", by, "reason", a.Reason}
	if a.For > 0 {
		args = append(args, "for", a.For)
	}
	if a.Err != nil {
		args = append(args, "error", a.Err)
	}
	if a.Unrecorded != nil {
		args = append(args, "unrecorded", a.Unrecorded)
	}
	log.Info("admin action", args...)
}
