package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store"
)

// addSettings gives a command the flags of settings.
func addSettings(cmd *cobra.Command, settings ...config.Setting) {
	for _, s := range settings {
		switch {
		case s.List:
			cmd.Flags().StringArray(s.Flag(), nil, s.Usage())
		case s.Switch:
			cmd.Flags().Bool(s.Flag(), false, s.Usage())
		default:
			cmd.Flags().String(s.Flag(), "", s.Usage())
		}
	}
}

// flags looks up the flags of a command.
func flags(cmd *cobra.Command) config.Flags {
	return func(name string) (value string, given bool) {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			return "", false
		}
		if list, ok := f.Value.(interface{ GetSlice() []string }); ok {
			return strings.Join(list.GetSlice(), ","), true
		}
		return f.Value.String(), true
	}
}

// loadConfig reads the file for the command line, where notations are always
// accepted.
func loadConfig(cmd *cobra.Command) (*config.Config, error) {
	c, err := config.Load(flags(cmd))
	if err != nil {
		return nil, err
	}
	yes := true
	c.AllowNotations = &yes
	return c, nil
}

// resolveLimit returns the limit of an argument where there is no store: a
// name of the config file, or a notation.
func resolveLimit(cmd *cobra.Command, nameOrNotation string) (headgate.Limit, error) {
	c, err := loadConfig(cmd)
	if err != nil {
		return headgate.Limit{}, err
	}
	return c.Limit(nameOrNotation)
}

// place is where a command keeps its state.
type place struct {
	url  string
	said bool // by somebody: it is not the default
}

func placeOf(cmd *cobra.Command, c *config.Config) (place, error) {
	said, err := c.Get(config.Store, flags(cmd))
	return place{said.Value, said.By != ""}, err
}

// makers are the commands that make a store which is not there yet. What looks at a store, or administers one, was
// intended for another: an empty list would read as if nobody were limited.
var makers = []string{"take", "check", "fill-up", "run", "bench", "migrate"}

// check refuses a store that the user cannot want.
func (p place) check(cmd *cobra.Command) error {
	server, err := serverOf(cmd)
	if err != nil {
		return err
	}
	if server != "" {
		return fmt.Errorf("%w: %s is set, and this command cannot ask a server: name its store with --store, or "+
			"unset %[2]s", store.ErrSetup, config.Server.Variable())
	}
	if file := p.file(); file != "" && !exists(file) && !slices.Contains(makers, cmd.Name()) {
		return fmt.Errorf("%w: there is no store %s; name one with --store or %s; headgate migrate makes a new one",
			store.ErrSetup, file, config.Store.Variable())
	}
	return nil
}

// open opens the store. That the default is a new file is said, once: in another
// folder the same command has another file, and so other limits. Run says it each time.
func (p place) open(cmd *cobra.Command, o storeOptions) (store.Store, error) {
	if err := p.check(cmd); err != nil {
		return nil, err
	}
	fresh := !p.said && !exists(p.file()) && cmd.Name() != "run"
	if err := p.prepare(); err != nil {
		return nil, err
	}
	s, err := openStore(cmd.Context(), p.url, o)
	if err == nil && fresh {
		whose := ""
		if p.here() {
			whose = ", for this folder"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: made a new store, %s%s; --store or HEADGATE_STORE names "+
			"another\n", cmd.CommandPath(), p.file(), whose)
	}
	return s, err
}

// prepare makes the folder of the default store, which need not be there yet.
func (p place) prepare() error {
	if p.said || p.here() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.file()), 0o700); err != nil {
		return fmt.Errorf("%w: the folder of the default store: %w", store.ErrSetup, err)
	}
	return nil
}

// here reports whether it is the default store of the current folder.
func (p place) here() bool { return p.url == config.DefaultStore }

// openPlace reads the config and opens the store of a command.
func openPlace(cmd *cobra.Command) (c *config.Config, p place, s store.Store, err error) {
	if c, err = loadConfig(cmd); err == nil {
		p, s, err = openBy(cmd, c, storeOptions{})
	}
	return c, p, s, err
}

// openBy opens the store that a command, or else its config, names.
func openBy(cmd *cobra.Command, c *config.Config, o storeOptions) (p place, s store.Store, err error) {
	if p, err = placeOf(cmd, c); err == nil {
		s, err = p.open(cmd, o)
	}
	return p, s, err
}

// file is the file of a store of SQLite, empty for other stores.
func (p place) file() string {
	path, isFile := strings.CutPrefix(p.url, "sqlite:")
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

// shown is where the state is, for people.
func (p place) shown() string {
	return cmp.Or(p.file(), store.RedactURL(p.url))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
