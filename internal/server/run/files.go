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
	applyWithin = 10 * time.Second // how long the store may take to apply a file
	mostTold    = 20               // changes that the log names

	versionsLooked = 100 // to learn who has made what a file undoes
)

// applied is a server's config file, which is applied to the catalog: at the start, when it
// is changed, and on SIGHUP. It is safe for concurrent use.
type applied struct {
	log      *slog.Logger
	config   *Config          // whose File and Flags are not read again
	files    []string         // none: there is no file
	limits   *catalog.Catalog // that the server watches; nil until it does
	observer catalog.Observer // hears of each try

	rules atomic.Pointer[rules.Rules] // those of the files that are in force; nil: there are none

	mu      sync.Mutex
	text    string        // of the files, as they were tried last; empty: they were not
	changed bool          // the files have changed under this server, and that was not applied yet
	file    *catalog.File // that was read last; nil: none
	problem error         // why that is not in force; nil: nothing is known to be wrong

	impossible []string // what the files that are in force say and can never work
	warnings   []string // what may be a mistake in them
}

func newApplied(c *Config, observer catalog.Observer, log *slog.Logger) *applied {
	a := &applied{log: log, config: c, files: c.File.Files, observer: observer}
	a.useRules(c.File)
	return a
}

// watch says which catalog the server goes by.
func (a *applied) watch(limits *catalog.Catalog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = limits
}

// name is what the files are called.
func (a *applied) name() string { return strings.Join(a.files, ", ") }

// Problem says why limits are not as the files say, or cannot be read; empty: they are.
func (a *applied) Problem() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.problem != nil {
		return a.problem.Error()
	}
	if a.limits != nil {
		if err := a.limits.Err(); err != nil {
			return err.Error()
		}
	}
	if a.limits != nil && a.file != nil {
		if d, err := a.limits.Status(*a.file); err == nil && d.Known == catalog.Older {
			return Older(a.name())
		}
	}
	if len(a.impossible) > 0 {
		return a.impossible[0]
	}
	return ""
}

// Older says of a file why it is not in force.
func Older(name string) string {
	return name + ": a newer file is in force, which was applied later or has a greater revision; " +
		"headgate limits apply -f applies this one again"
}

// tryAgain reports whether the store was in the way of the last try.
func (a *applied) tryAgain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.problem != nil && store.Class(a.problem) != nil && !errors.Is(a.problem, store.ErrInvalid)
}

// lost reports whether the store had what the files say, and has neither that any more nor anything newer.
func (a *applied) lost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limits == nil || a.file == nil {
		return false
	}
	d, err := a.limits.Status(*a.file)
	return err == nil && d.Known == catalog.Lost
}

// apply reads the files and applies their limits to the catalog of a store. What is wrong is
// said once.
func (a *applied) apply(ctx context.Context, s store.Store) error {
	if len(a.files) == 0 {
		return nil
	}
	text, texts := textOf(a.config.ReadFile, a.files)
	a.mu.Lock()
	a.changed = a.changed || a.text != "" && text != a.text
	how, order := catalog.Once, int64(0)
	if a.changed { // whatever was applied in between, somebody wants this now
		how = catalog.Again
	} else if a.file != nil {
		order = a.file.Order
	}
	a.mu.Unlock()
	c, err := config.ReadWith(texts, a.files...) // what was read once: the file may change again meanwhile
	var file *catalog.File
	if err == nil && (c.Limits != nil || c.Plans != nil) {
		defines := c.Defines()
		file, defines.Order = &defines, order
		err = a.write(ctx, s, file, how)
	} else if err != nil {
		a.observer.Applied(catalog.Application{Path: a.name(), Err: err})
	}
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		a.refresh(ctx) // so that the limits which the rules name are known
		if had := a.rules.Load().Len(); how == catalog.Again && (had > 0 || c.Rules.Len() > 0) {
			a.log.Info("the rules of the config file are in force", "file", a.name(), "rules", c.Rules.Len(),
				"before", had)
		}
		a.useRules(c)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && (a.problem == nil || a.problem.Error() != err.Error()) {
		a.log.Error("the config file is not applied; the limits stay what they were", "file", a.name(), "error", err)
	}
	a.text, a.file, a.problem, a.changed = text, file, err, a.changed && err != nil
	return err
}

// useRules replaces all rules. What may be a mistake in them, or can never work, is said once.
func (a *applied) useRules(c *config.Config) {
	a.rules.Store(c.Rules)
	warnings := c.Warnings()
	var never []string
	for _, err := range impossible(c) {
		never = append(never, err.Error())
	}
	a.mu.Lock()
	warned, told := slices.Equal(a.warnings, warnings), slices.Equal(a.impossible, never)
	a.warnings, a.impossible = warnings, never
	a.mu.Unlock()
	for _, warning := range warnings {
		if !warned {
			a.log.Warn("rules: " + warning)
		}
	}
	for _, what := range never {
		if !told {
			a.log.Error("the config file has what can never work; the rest of it decides", "what", what)
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

// write applies a file, notes its order, and says what became of that.
func (a *applied) write(ctx context.Context, s store.Store, f *catalog.File, how catalog.Applying) error {
	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	limits, err := catalog.Read(ctx, s, &catalog.Config{Logger: slog.New(slog.DiscardHandler), Observer: a.observer})
	if err != nil {
		return err
	}
	d, version, err := limits.Apply(ctx, catalog.By{Author: a.config.Author, Reason: byServers + f.Path}, *f, how)
	if err != nil {
		return err // and the order of before is still known
	}
	f.Order = d.Order
	switch {
	case d.Known == catalog.Older && how == catalog.Once:
		a.log.Warn("the config file is not applied: " + Older(f.Path))
	case d.Known == catalog.Lost:
		a.log.Warn("the store had lost what the config file says; it was applied again", "file", f.Path,
			"changes", len(d.Lines()), "version", version)
	case d.Known == catalog.Newest && !d.Empty():
		a.log.Warn("limits were changed since the config file was applied; they stay as they are", "file", f.Path,
			"changes", len(d.Lines()), "first", d.Lines()[0])
	case d.Known != catalog.Newest:
		lines := d.Lines()
		a.log.Info("the config file was applied", "file", f.Path, "changes", len(lines), "version", version,
			"what", lines[:min(len(lines), mostTold)])
		a.tellUndone(ctx, limits, &d, version)
	}
	return nil
}

// byServers begins the reasons of what servers apply.
const byServers = "headgate serve, "

// tellUndone says which changes of limits that no server made a file has undone, as far as the newest versions know.
func (a *applied) tellUndone(ctx context.Context, limits *catalog.Catalog, d *catalog.Difference, version int64) {
	versions, err := limits.Versions(ctx, version, versionsLooked)
	if err != nil { // it is applied; who made it otherwise is not known
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
		a.log.Warn("the config file undoes a change that was made otherwise", "limit", c.Before.Name,
			"was", c.Before.Text, "version", versions[i].Number, "by", versions[i].Author, "reason", versions[i].Reason)
	}
}

// follow applies the files each time that they are changed, or that SIGHUP comes, when it lets those of more be read
// again too, until ctx is done. They are applied when two looks have found the same text: the first may have come while
// a file was being written.
func (a *applied) follow(ctx context.Context, s store.Store, opened <-chan struct{}, more followed) {
	select {
	case <-opened:
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(a.config.Pauses.Reload)
	defer ticker.Stop()
	asked := false
	for seen := ""; ; {
		look := false
		select {
		case <-ctx.Done():
			return
		case <-a.config.Hangup:
			asked = true
			tellReloading(a.log)
			more.look(a.log, true)
			if len(a.files) == 0 {
				a.log.Info("SIGHUP: there is no config file to read again")
				tell(a.log, daemon.SdNotifyReady)
				asked = false
			}
		case <-ticker.C:
			look = true
		}
		if len(a.files) == 0 {
			continue
		}
		text, _ := textOf(a.config.ReadFile, a.files)
		a.mu.Lock()
		changed := text != a.text
		a.mu.Unlock()
		still := text == seen
		if asked && still || changed && still || !changed && (a.tryAgain() || a.lost()) {
			_ = a.apply(ctx, s) // it says what is wrong
		}
		if asked && still {
			tell(a.log, daemon.SdNotifyReady)
			asked = false
		}
		if look {
			seen = text
		}
	}
}

// refresh lets the server go by the catalog as it is now, and not as of when it last looked.
func (a *applied) refresh(ctx context.Context) {
	a.mu.Lock()
	limits := a.limits
	a.mu.Unlock()
	if limits == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	_ = limits.Refresh(ctx) // it is read within a second anyway
}

// textOf returns what is in files, to see a change, and a function that returns the text of each. Of one that cannot be
// read it is why.
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
