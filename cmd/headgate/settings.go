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

// placeOf returns where a command keeps its state.
func placeOf(cmd *cobra.Command, c *config.Config) (config.Place, error) {
	said, err := c.Get(config.Store, flags(cmd))
	return config.Place{URL: said.Value, Said: said.By != ""}, err
}

// makers are the commands that make a store which is not there yet. What looks at a store, or administers one, was
// intended for another: an empty list would read as if nobody were limited.
var makers = []string{"take", "check", "fill-up", "run", "bench", "migrate"}

// refuse refuses a store that the user cannot want.
func refuse(cmd *cobra.Command, p config.Place) error {
	server, err := serverOf(cmd)
	if err != nil {
		return err
	}
	if server != "" {
		return fmt.Errorf("%w: %s is set, and this command cannot ask a server: name its store with --store, or "+
			"unset %[2]s", store.ErrSetup, config.Server.Variable())
	}
	if p.Missing() && !slices.Contains(makers, cmd.Name()) {
		return fmt.Errorf("%w: there is no store %s; name one with --store or %s; headgate migrate makes a new one",
			store.ErrSetup, p, config.Store.Variable())
	}
	return nil
}

// openPlace reads the config and opens the store of a command.
func openPlace(cmd *cobra.Command) (c *config.Config, p config.Place, s store.Store, err error) {
	if c, err = loadConfig(cmd); err == nil {
		p, s, err = openBy(cmd, c, stores.Options{})
	}
	return c, p, s, err
}

// openBy opens the store that a command, or else its config, names. That the default is a new file is said, once: in
// another folder the same command has another file, and so other limits. Run says it each time.
func openBy(cmd *cobra.Command, c *config.Config, o stores.Options) (p config.Place, s store.Store, err error) {
	p, err = placeOf(cmd, c)
	if err = cmp.Or(err, refuse(cmd, p)); err != nil {
		return p, nil, err
	}
	fresh := !p.Said && p.Missing() && cmd.Name() != "run"
	if err := p.Prepare(); err != nil {
		return p, nil, err
	}
	s, err = stores.Open(cmd.Context(), p.URL, o)
	if err == nil && fresh {
		whose := ""
		if p.Here() {
			whose = ", for this folder"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: made a new store, %s%s; --store or HEADGATE_STORE names "+
			"another\n", cmd.CommandPath(), p, whose)
	}
	return p, s, err
}
