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
	"github.com/headgate/headgate/store"
)

const (
	applyTimeout = 10 * time.Second // how long the store may take to apply a file
	maxLogged    = 20               // changes that the log names

	maxVersions = 100 // to learn who has made what a file undoes
)

// configFiles applies the config files of a server to the catalog: at the start, when they
// change, and on SIGHUP. It is safe for concurrent use.
type configFiles struct {
	log      *slog.Logger
	config   *Config          // whose File and Flags are not read again
	files    []string         // none: there is no file
	limits   *catalog.Catalog // that the server watches; nil until it does
	observer catalog.Observer // of each try

	rules atomic.Pointer[rules.Rules] // those of the files that are in force; nil: there are none

	mu      sync.Mutex
	text    string        // of the files, as they were tried last; empty: they were not
	changed bool          // the files have changed under this server, and that was not applied yet
	file    *catalog.File // that was read last; nil: none
	problem error         // why that is not in force; nil: nothing is known to be wrong

	impossible []string // what the files that are in force say and can never work
	warnings   []string // what may be a mistake in them
}

func newApplied(c *Config, observer catalog.Observer, log *slog.Logger) *configFiles {
	a := &configFiles{log: log, config: c, files: c.File.Files, observer: observer}
	a.useRules(c.File) // at once: the store may be away, and a proxy must not go without them
	return a
}

// watch sets the catalog of the server.
func (f *configFiles) watch(limits *catalog.Catalog) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = limits
}

// name returns the names of the files.
func (f *configFiles) name() string { return strings.Join(f.files, ", ") }

// Problem returns why limits are not as in the files, or cannot be read; empty: they are.
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
		if d, err := f.limits.Status(*f.file); err == nil && d.Known == catalog.Older {
			return Older(f.name())
		}
	}
	if len(f.impossible) > 0 {
		return f.impossible[0]
	}
	return ""
}

// Older returns why a file with a newer one beside it is not in force.
func Older(name string) string {
	return name + ": a newer file is in force, which was applied later or has a greater revision; " +
		"headgate limits apply -f applies this one again"
}

// retryable reports whether the last try failed in the store.
func (f *configFiles) retryable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem != nil && store.Class(f.problem) != nil && !errors.Is(f.problem, store.ErrInvalid)
}

// lost reports whether the store has lost the files, and has nothing newer.
func (f *configFiles) lost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limits == nil || f.file == nil {
		return false
	}
	d, err := f.limits.Status(*f.file)
	return err == nil && d.Known == catalog.Lost
}

// apply reads the files and applies their limits to the catalog of a store. It logs an error once.
func (f *configFiles) apply(ctx context.Context, s store.Store) error {
	if len(f.files) == 0 {
		return nil
	}
	text, texts := textOf(f.config.ReadFile, f.files)
	f.mu.Lock()
	f.changed = f.changed || f.text != "" && text != f.text
	how, order := catalog.Once, int64(0)
	if f.changed { // whatever was applied in between, somebody wants this now
		how = catalog.Again
	} else if f.file != nil {
		order = f.file.Order
	}
	f.mu.Unlock()
	c, err := config.ReadWith(texts, f.files...) // what was read once: the file may change again meanwhile
	var file *catalog.File
	if err == nil && (c.Limits != nil || c.Plans != nil) {
		defines := c.Defines()
		file, defines.Order = &defines, order
		err = f.write(ctx, s, file, how)
	} else if err != nil {
		f.observer.Applied(catalog.Application{Path: f.name(), Err: err})
	}
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		f.refresh(ctx) // so that the limits which the rules name are known
		if had := f.rules.Load().Len(); how == catalog.Again && (had > 0 || c.Rules.Len() > 0) {
			f.log.Info("the rules of the config file are in force", "file", f.name(), "rules", c.Rules.Len(),
				"before", had)
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

// useRules replaces all rules. It logs once what may be a mistake in them, or can never work.
func (f *configFiles) useRules(c *config.Config) {
	f.rules.Store(c.Rules)
	warnings := c.Warnings()
	var never []string
	for _, err := range impossible(c) {
		never = append(never, err.Error())
	}
	f.mu.Lock()
	warned, told := slices.Equal(f.warnings, warnings), slices.Equal(f.impossible, never)
	f.warnings, f.impossible = warnings, never
	f.mu.Unlock()
	for _, warning := range warnings {
		if !warned {
			f.log.Warn("rules: " + warning)
		}
	}
	for _, what := range never {
		if !told {
			f.log.Error("the config file has what can never work; the rest of it decides", "what", what)
		}
	}
}

// impossible returns what a file says and can never work.
func impossible(c *config.Config) []error {
	empty, err := stores.Open(context.Background(), "memory:", stores.Options{})
	if err != nil {
		return []error{err}
	}
	defer empty.Close()
	return c.Impossible(headgate.New(empty, &headgate.Config{Timeout: time.Minute}))
}

// write applies a file, sets its order, and logs the result.
func (f *configFiles) write(ctx context.Context, s store.Store, file *catalog.File, how catalog.Applying) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	limits, err := catalog.Read(ctx, s, &catalog.Config{Logger: slog.New(slog.DiscardHandler), Observer: f.observer})
	if err != nil {
		return err
	}
	d, version, err := limits.Apply(ctx, catalog.By{Author: f.config.Author, Reason: byServers + file.Path}, *file, how)
	if err != nil {
		return err // file keeps its order
	}
	file.Order = d.Order
	switch {
	case d.Known == catalog.Older && how == catalog.Once:
		f.log.Warn("the config file is not applied: " + Older(file.Path))
	case d.Known == catalog.Lost:
		f.log.Warn("the store had lost what the config file says; it was applied again", "file", file.Path,
			"changes", len(d.Lines()), "version", version)
	case d.Known == catalog.Newest && !d.Empty():
		f.log.Warn("limits were changed since the config file was applied; they stay as they are", "file", file.Path,
			"changes", len(d.Lines()), "first", d.Lines()[0])
	case d.Known != catalog.Newest:
		lines := d.Lines()
		f.log.Info("the config file was applied", "file", file.Path, "changes", len(lines), "version", version,
			"what", lines[:min(len(lines), maxLogged)])
		f.warnUndone(ctx, limits, &d, version)
	}
	return nil
}

// byServers begins the reason of a version that a server applies.
const byServers = "headgate serve, "

// warnUndone logs which changes of limits by others a file has undone, as far as the newest versions show.
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
			strings.HasPrefix(versions[i].Reason, byServers) {
			continue
		}
		f.log.Warn("the config file undoes a change that was made otherwise", "limit", c.Before.Name,
			"was", c.Before.Text, "version", versions[i].Number, "by", versions[i].Author, "reason", versions[i].Reason)
	}
}

// follow applies the files when they change or SIGHUP comes, until ctx is done. SIGHUP reloads more too. A change
// counts when two looks have found the same text: the first may have come while a file was being written.
func (f *configFiles) follow(ctx context.Context, s store.Store, opened <-chan struct{}, more sources) {
	select {
	case <-opened:
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(f.config.Pauses.Reload)
	defer ticker.Stop()
	asked := false
	for seen := ""; ; {
		look := false
		select {
		case <-ctx.Done():
			return
		case <-f.config.Hangup:
			asked = true
			notify(f.log, daemon.SdNotifyReloading, daemon.SdNotifyMonotonicUsec()) // until it is ready again
			more.check(f.log, true)
			if len(f.files) == 0 {
				f.log.Info("SIGHUP: there is no config file to read again")
				notify(f.log, daemon.SdNotifyReady)
				asked = false
			}
		case <-ticker.C:
			look = true
		}
		if len(f.files) == 0 {
			continue
		}
		text, _ := textOf(f.config.ReadFile, f.files)
		f.mu.Lock()
		changed := text != f.text
		f.mu.Unlock()
		still := text == seen
		if asked && still || changed && still || !changed && (f.retryable() || f.lost()) {
			_ = f.apply(ctx, s) // it logs the error
		}
		if asked && still {
			notify(f.log, daemon.SdNotifyReady)
			asked = false
		}
		if look {
			seen = text
		}
	}
}

// refresh reads the catalog now.
func (f *configFiles) refresh(ctx context.Context) {
	f.mu.Lock()
	limits := f.limits
	f.mu.Unlock()
	if limits == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	_ = limits.Refresh(ctx) // it is read within a second anyway
}

// textOf returns a text that changes with the files, and a function that returns the text or the error of each.
func textOf(readFile func(path string) ([]byte, error), files []string) (
	all string, read func(path string) ([]byte, error),
) {
	type found struct {
		text []byte
		err  error
	}
	texts := map[string]found{}
	var b strings.Builder
	for _, file := range files {
		text, err := readFile(file)
		texts[file] = found{text, err}
		fmt.Fprintf(&b, "%d %s %v\n", len(text), text, err)
	}
	return b.String(), func(path string) ([]byte, error) { return texts[path].text, texts[path].err }
}
