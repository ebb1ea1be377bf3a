package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/run"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
)

func newService(s store.Store, c *config.Config, names catalog.Names) *service.Service {
	return service.New(headgate.New(s, &headgate.Config{Names: names}), c, names)
}

func newMigrateCommand() *cobra.Command {
	var o stores.Options
	var remove bool
	var role, user string
	var c changing
	cmd := &cobra.Command{
		Use:        "migrate --store URL",
		Short:      "Bring a store's schema up to date, and apply the config file's limits",
		SuggestFor: []string{"upgrade", "install", "init"},
		Args:       cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			p, s, err := openBy(cmd, file, o)
			if err != nil {
				return err
			}
			defer s.Close()
			if remove {
				return c.remove(cmd, s, p)
			}
			if c.yes || c.dry {
				return headgate.Invalid("remove", "is missing: --yes and --dry-run go with it alone")
			}
			if (role == "") != (user == "") {
				return headgate.Invalid("role", "--role and --user stand together")
			}
			m, ok := store.As[store.Migrator](s)
			if !ok {
				return headgate.Invalid("store", "%s has no schema", store.RedactURL(p.URL))
			}
			report, err := m.Migrate(cmd.Context())
			if err != nil {
				return err
			}
			if role != "" {
				lines, err := grant(cmd, s, p, role, user)
				if err != nil {
					return err
				}
				report = append(report, lines...)
			}
			for _, line := range report {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			if file.Limits == nil && file.Plans == nil {
				return nil
			}
			limits, err := readCatalog(cmd.Context(), s)
			if err != nil {
				return err
			}
			return applyOnce(cmd, limits, file.Defines())
		},
	}
	addSettings(cmd, config.Store, config.File)
	cmd.Flags().BoolVar(&remove, "remove", false,
		"remove all that it has made, with the state of all keys; it prints what, and asks")
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "with --remove: do not ask")
	cmd.Flags().BoolVar(&c.dry, "dry-run", false, "with --remove: print what would be removed, and remove nothing")
	cmd.Flags().StringVar(&role, "role", "", "give --user a `role`: app asks about limits by name, in SQL; "+
		"service is for servers, the command and the Go library")
	cmd.Flags().StringVar(&user, "user", "", "an existing `user` of the database, for --role")
	cmd.Flags().StringVar(&o.Articles, "articles", "", "make the functions of five articles too, such as "+
		"check_velocity, in this `schema` of PostgreSQL, or database of MariaDB or MySQL")
	return cmd
}

// grant gives a user of the database a role.
func grant(cmd *cobra.Command, s store.Store, p stores.Place, role, user string) ([]string, error) {
	g, ok := store.As[store.Granter](s)
	if !ok {
		return nil, fmt.Errorf("%w: %s has no roles", headgate.ErrUnsupported, store.RedactURL(p.URL))
	}
	return g.Grant(cmd.Context(), store.Role(role), user)
}

// applyOnce applies a file as a server does: one that was applied before changes nothing.
func applyOnce(cmd *cobra.Command, limits *catalog.Catalog, f catalog.File) error {
	before, _ := limits.Version()
	d, version, err := limits.Apply(cmd.Context(), by("headgate migrate, "+f.Path), f, catalog.Once)
	switch {
	case err != nil:
		return err
	case d.Known == catalog.Older:
		fmt.Fprintln(cmd.ErrOrStderr(), run.Older(f.Path))
		return nil
	case d.Known == catalog.Newest && !d.Empty():
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: limits were changed since it was applied; they stay as they are:\n", f.Path)
	}
	for _, line := range d.Lines() {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	if d.Known == catalog.New {
		made(cmd, version != before, version)
	}
	return nil
}

// remove removes all that migrate has made.
func (c *changing) remove(cmd *cobra.Command, s store.Store, p stores.Place) error {
	r, ok := store.As[store.Remover](s)
	if !ok {
		return fmt.Errorf("%w: %s has nothing that migrate has made, or it is removed otherwise: see docs/stores.md",
			headgate.ErrUnsupported, store.RedactURL(p.URL))
	}
	lines, err := r.Removal(cmd.Context())
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove")
		return nil
	}
	for _, line := range lines {
		fmt.Fprintln(cmd.OutOrStdout(), "- "+line)
	}
	if c.dry {
		return nil
	}
	if err := c.agreed(cmd, "Remove all of this from "+store.RedactURL(p.URL)+"?"); err != nil {
		return err
	}
	if err := r.Remove(cmd.Context()); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "removed")
	return nil
}
