package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rules"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/store"
)

const (
	applyTimeout = 10 * time.Second // how long the store may take to apply a file
	maxLogged    = 20               // changes that the log lists

	maxVersions = 100 // versions that warnUndone searches
)

// configFiles applies the config files of a server to the catalog: at the start, when they change, and on SIGHUP. It is
// safe for concurrent use.
type configFiles struct {
	log      *slog.Logger
	config   *Config          // its File and Flags are of the start
	files    []string         // empty: no config file
	limits   *catalog.Catalog // the server's catalog; nil at first
	observer catalog.Observer // of each attempt to apply the files

	rules  atomic.Pointer[rules.Rules] // in force; nil: none
	prices atomic.Pointer[llm.Prices]  // in force; never nil

	mu      sync.Mutex
	text    string        // of the files at the last attempt; empty: no attempt yet
	changed bool          // the files have changed since the start, and the change is not applied yet
	file    *catalog.File // the limits that were read last; nil: none
	problem error         // why file is not in force; nil: no known problem

	impossible []string // the parts of the files in force that can never work
	warnings   []string // possible mistakes in the files in force
}

// newConfigFiles puts the rules of the files into force. The limits are applied later.
func newConfigFiles(c *Config, observer catalog.Observer, log *slog.Logger) *configFiles {
	a := &configFiles{log: log, config: c, files: c.File.Files, observer: observer}
	a.useRules(c.File) // at once: a proxy needs the rules even if the store is away
	return a
}

func (f *configFiles) setCatalog(limits *catalog.Catalog) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = limits
}

func (f *configFiles) name() string { return strings.Join(f.files, ", ") }

// Problem returns why the limits differ from the files or cannot be read, or what can never work; empty: no problem.
func (f *configFiles) Problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != nil {
		return f.problem.Error()
	}
	if f.limits != nil {
		if err := f.limits.Err(); err != nil {
			return err.Error()
		}
	}
	if f.limits != nil && f.file != nil {
		if d, err := f.limits.Status(*f.file); err == nil && d.Standing == catalog.FileOlder {
			return OlderFileMessage(f.name())
		}
	}
	if len(f.impossible) > 0 {
		return f.impossible[0]
	}
	return ""
}

// OlderFileMessage returns the message that a file is not in force because another one is newer.
func OlderFileMessage(name string) string {
	return name + ": a newer file is in force, which was applied later or has a greater revision; " +
		"headgate limits apply -f applies this one again"
}

// retryable reports whether the last attempt failed because of the store.
func (f *configFiles) retryable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem != nil && store.Class(f.problem) != nil && !errors.Is(f.problem, store.ErrInvalid)
}

// hasLostLimits reports whether the store has lost the limits of the files, and has no newer ones.
func (f *configFiles) hasLostLimits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limits == nil || f.file == nil {
		return false
	}
	d, err := f.limits.Status(*f.file)
	return err == nil && d.Standing == catalog.FileLost
}

// apply reads the files, applies their limits to the catalog of a store, and puts their rules and prices into force. It
// logs an error, unless it is that of the last attempt.
func (f *configFiles) apply(ctx context.Context, s store.Store) error {
	if len(f.files) == 0 {
		return nil
	}
	text, texts := textOf(f.config.ReadFile, f.files)
	f.mu.Lock()
	f.changed = f.changed || f.text != "" && text != f.text
	mode, order := catalog.ApplyOnce, int64(0)
	if f.changed { // apply it even if another file was applied in between
		mode = catalog.ApplyAgain
	} else if f.file != nil {
		order = f.file.Order
	}
	f.mu.Unlock()
	c, err := config.ReadWith(texts, f.files...) // what was read once: the file may change again meanwhile
	var file *catalog.File
	if err == nil && (c.Limits != nil || c.Plans != nil) {
		defines := c.CatalogFile()
		file, defines.Order = &defines, order
		err = f.write(ctx, s, file, mode)
	} else if err != nil {
		f.observer.Applied(catalog.Application{Path: f.name(), Err: err})
	}
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		f.refresh(ctx) // so that the limits in the rules are known
		if before := f.rules.Load().Len(); mode == catalog.ApplyAgain && (before > 0 || c.Rules.Len() > 0) {
			f.log.Info("the rules of the config file are in force", "file", f.name(), "rules", c.Rules.Len(),
				"before", before)
		}
		f.useRules(c)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && (f.problem == nil || f.problem.Error() != err.Error()) {
		f.log.Error("the config file is not applied; the limits stay what they were", "file", f.name(), "error", err)
	}
	f.text, f.file, f.problem, f.changed = text, file, err, f.changed && err != nil
	return err
}

// useRules replaces all rules and prices. It logs possible mistakes, and parts that can never work, when they change.
func (f *configFiles) useRules(c *config.Config) {
	f.rules.Store(c.Rules)
	f.prices.Store(&c.Prices)
	warnings := c.Warnings()
	var parts []string
	for _, err := range impossibleParts(c) {
		parts = append(parts, err.Error())
	}
	f.mu.Lock()
	sameWarnings, sameParts := slices.Equal(f.warnings, warnings), slices.Equal(f.impossible, parts)
	f.warnings, f.impossible = warnings, parts
	f.mu.Unlock()
	for _, warning := range warnings {
		if !sameWarnings {
			f.log.Warn("rules: " + warning)
		}
	}
	for _, what := range parts {
		if !sameParts {
			f.log.Error("the config file has what can never work; the rest of it decides", "what", what)
		}
	}
}

// impossibleParts returns the parts of a file that can never work.
func impossibleParts(c *config.Config) []error {
	empty, err := stores.Open(context.Background(), "memory:", stores.Options{})
	if err != nil {
		return []error{err}
	}
	defer empty.Close()
	return c.Impossible(headgate.New(empty, &headgate.Config{Timeout: time.Minute}))
}

// write applies a file to the catalog, sets file.Order, and logs what was done. It returns an error without logging it.
func (f *configFiles) write(ctx context.Context, s store.Store, file *catalog.File, mode catalog.ApplyMode) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	limits, err := catalog.Read(ctx, s, &catalog.Config{Logger: slog.New(slog.DiscardHandler), Observer: f.observer})
	if err != nil {
		return err
	}
	by := catalog.By{Author: f.config.Author, Reason: serverReason + file.Path}
	d, version, err := limits.Apply(ctx, by, *file, mode)
	if err != nil {
		return err
	}
	file.Order = d.Order
	switch {
	case d.Standing == catalog.FileOlder && mode == catalog.ApplyOnce:
		f.log.Warn("the config file is not applied: " + OlderFileMessage(file.Path))
	case d.Standing == catalog.FileLost:
		f.log.Warn("the store had lost what the config file says; it was applied again", "file", file.Path,
			"changes", len(d.Lines()), "version", version)
	case d.Standing == catalog.FileNewest && !d.Empty():
		f.log.Warn("limits were changed since the config file was applied; they stay as they are", "file", file.Path,
			"changes", len(d.Lines()), "first", d.Lines()[0])
	case d.Standing != catalog.FileNewest:
		lines := d.Lines()
		f.log.Info("the config file was applied", "file", file.Path, "changes", len(lines), "version", version,
			"what", lines[:min(len(lines), maxLogged)])
		f.warnUndone(ctx, limits, &d, version)
	}
	return nil
}

// serverReason begins the reason of a version that a server makes.
const serverReason = "headgate serve, "

// warnUndone logs which changes of limits by others a file has undone, as far as the newest versions have them.
func (f *configFiles) warnUndone(ctx context.Context, limits *catalog.Catalog, d *catalog.Difference, version int64) {
	versions, err := limits.Versions(ctx, version, maxVersions)
	if err != nil { // the file is applied; only the warning is missing
		return
	}
	for _, c := range d.Changes {
		i := slices.IndexFunc(versions, func(v store.Version) bool {
			return slices.ContainsFunc(v.Changes, func(change store.Change) bool {
				return change.After.ID() == c.After.ID()
			})
		})
		if c.After.Kind != store.KindLimit || c.Before.Removed || i < 0 ||
			strings.HasPrefix(versions[i].Reason, serverReason) {
			continue
		}
		f.log.Warn("the config file undoes a change that was made otherwise", "limit", c.Before.Name,
			"was", c.Before.Text, "version", versions[i].Number, "by", versions[i].Author, "reason", versions[i].Reason)
	}
}

// follow applies the files until ctx is done: when they change, when the store has failed or has lost them, and on
// SIGHUP, which also reloads the other files. It applies a change only when two checks have found the same text, since
// a file may be in the middle of being written.
func (f *configFiles) follow(ctx context.Context, s store.Store, opened <-chan struct{}, otherFiles sources) {
	select {
	case <-opened:
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(f.config.Pauses.Reload)
	defer ticker.Stop()
	hangup := false // SIGHUP came, and the files are not applied yet
	for lastText := ""; ; {
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-f.config.Hangup:
			hangup = true
			notify(f.log, daemon.SdNotifyReloading, daemon.SdNotifyMonotonicUsec()) // until it is ready again
			otherFiles.check(f.log, true)
			if len(f.files) == 0 {
				f.log.Info("SIGHUP: there is no config file to read again")
				notify(f.log, daemon.SdNotifyReady)
				hangup = false
			}
		case <-ticker.C:
			ticked = true
		}
		if len(f.files) == 0 {
			continue
		}
		text, _ := textOf(f.config.ReadFile, f.files)
		f.mu.Lock()
		changed := text != f.text
		f.mu.Unlock()
		stable := text == lastText
		if hangup && stable || changed && stable || !changed && (f.retryable() || f.hasLostLimits()) {
			_ = f.apply(ctx, s) // it logs the error
		}
		if hangup && stable {
			notify(f.log, daemon.SdNotifyReady)
			hangup = false
		}
		if ticked {
			lastText = text
		}
	}
}

func (f *configFiles) refresh(ctx context.Context) {
	f.mu.Lock()
	limits := f.limits
	f.mu.Unlock()
	if limits == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	_ = limits.Refresh(ctx) // the catalog reads again soon anyway
}

// textOf reads files once. joined changes if any file does; read returns the text or the error of each.
func textOf(readFile func(path string) ([]byte, error), files []string) (
	joined string, read func(path string) ([]byte, error),
) {
	type result struct {
		text []byte
		err  error
	}
	results := map[string]result{}
	var b strings.Builder
	for _, file := range files {
		text, err := readFile(file)
		results[file] = result{text, err}
		fmt.Fprintf(&b, "%d %s %v\n", len(text), text, err)
	}
	return b.String(), func(path string) ([]byte, error) { return results[path].text, results[path].err }
}
