package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
)

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

// flags returns a function that looks up the flags of cmd.
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

// loadConfig reads the config file for a command. Unlike a server, commands accept notations whatever the file says.
func loadConfig(cmd *cobra.Command) (*config.Config, error) {
	c, err := config.Load(flags(cmd))
	if err == nil {
		c.AllowNotations = new(true)
	}
	return c, err
}

// resolveLimit returns the limit that an argument means without a store: a name in the config file, or a notation.
func resolveLimit(cmd *cobra.Command, nameOrNotation string) (headgate.Limit, error) {
	c, err := loadConfig(cmd)
	if err != nil {
		return headgate.Limit{}, err
	}
	return c.Limit(nameOrNotation)
}

// placeOf returns the store of a command: that of a flag, the environment or the config file, or the default one.
func placeOf(cmd *cobra.Command, c *config.Config) (config.Place, error) {
	setting, err := c.Get(config.Store, flags(cmd))
	return config.Place{URL: setting.Value, Configured: setting.By != ""}, err
}

// loadPlace reads the config, and returns it with the store of a command.
func loadPlace(cmd *cobra.Command) (c *config.Config, p config.Place, err error) {
	if c, err = loadConfig(cmd); err == nil {
		p, err = placeOf(cmd, c)
	}
	return c, p, err
}

// creatingCommands are the commands that create a store that does not exist yet. Other commands, which look at a store
// or administer it, were meant for another store: an empty list would read as if nobody were limited.
var creatingCommands = []string{"take", "check", "fill-up", "run", "bench", "migrate"}

// checkPlace returns an error if a server is set too, or if the store's file does not exist and cmd creates none.
func checkPlace(cmd *cobra.Command, p config.Place) error {
	server, err := serverOf(cmd)
	if err != nil {
		return err
	}
	if server != "" {
		return fmt.Errorf("%w: %s is set, and this command cannot ask a server: name its store with --store, or "+
			"unset %[2]s", store.ErrSetup, config.Server.Variable())
	}
	if p.Missing() && !slices.Contains(creatingCommands, cmd.Name()) {
		return fmt.Errorf("%w: there is no store %s; name one with --store or %s; headgate migrate makes a new one",
			store.ErrSetup, p, config.Store.Variable())
	}
	return nil
}

// openPlace reads the config and opens the store of a command.
func openPlace(cmd *cobra.Command) (c *config.Config, p config.Place, s store.Store, err error) {
	if c, err = loadConfig(cmd); err == nil {
		p, s, err = openStore(cmd, c, stores.Options{})
	}
	return c, p, s, err
}

// openStore opens the store that a command, or else its config, names. When it makes a new file by default, it prints
// that: in another folder the same command has another file, and so other limits. run prints its own warning.
func openStore(cmd *cobra.Command, c *config.Config, o stores.Options) (p config.Place, s store.Store, err error) {
	p, err = placeOf(cmd, c)
	if err = cmp.Or(err, checkPlace(cmd, p)); err != nil {
		return p, nil, err
	}
	fresh := !p.Configured && p.Missing() && cmd.Name() != "run"
	if err := p.Prepare(); err != nil {
		return p, nil, err
	}
	s, err = stores.Open(cmd.Context(), p.URL, o)
	if err == nil && fresh {
		whose := ""
		if p.InCurrentFolder() {
			whose = ", for this folder"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: made a new store, %s%s; --store or HEADGATE_STORE names "+
			"another\n", cmd.CommandPath(), p, whose)
	}
	return p, s, err
}
