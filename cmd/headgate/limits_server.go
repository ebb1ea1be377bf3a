package main

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/config"
)

// askServer lets do ask the server that a command is to ask. asked is false where it is to open a store.
func askServer(cmd *cobra.Command, do func(*remote) error) (asked bool, err error) {
	url, err := serverOf(cmd)
	if err != nil || url == "" {
		return err != nil, err
	}
	token, err := new(config.Config).Get(config.Token, flags(cmd))
	if err != nil {
		return true, err
	}
	return true, do(newClient(url, token.Value))
}

// needsStore refuses flags that a server does not know.
func needsStore(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return headgate.Invalid(name, "is not known to a server; name a store")
		}
	}
	return nil
}

// change asks a server for a change of the catalogue, and tells what it has changed.
func (r *remote) change(cmd *cobra.Command, path string, in any, dry bool) error {
	var out api.Changed
	if err := r.call(cmd.Context(), http.MethodPost, path, in, &out); err != nil {
		return err
	}
	for _, change := range out.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), change.Text)
	}
	switch {
	case len(out.Changes) == 0:
		fmt.Fprintln(cmd.OutOrStdout(), "nothing to change")
	case !dry:
		fmt.Fprintf(cmd.OutOrStdout(), "the catalogue has version %d now%s\n", out.Version, changedIn(cmd))
	}
	return nil
}

// catalogue asks a server for its limits and plans.
func (r *remote) catalogue(cmd *cobra.Command) (*api.Catalogue, error) {
	out := new(api.Catalogue)
	return out, r.call(cmd.Context(), http.MethodGet, "/v1/catalogue", nil, out)
}

// versions asks a server for the newest versions of its catalogue, or of those that have changed a limit.
func (r *remote) versions(cmd *cobra.Command, limit string, most int) (*api.Versions, error) {
	out := new(api.Versions)
	return out, r.call(cmd.Context(), http.MethodGet, "/v1/versions", &api.VersionsQuery{Limit: limit, Max: most}, out)
}

// show tells what a limit of a server means, and what changed it last.
func (r *remote) show(cmd *cobra.Command, name string) error {
	c, err := r.catalogue(cmd)
	if err != nil {
		return err
	}
	for i := range c.Limits {
		if c.Limits[i].Name != name {
			continue
		}
		fmt.Fprintln(cmd.OutOrStdout(), c.Limits[i].Explain)
		v, err := r.versions(cmd, name, 1)
		if err == nil && len(v.Versions) > 0 {
			last := &v.Versions[0]
			fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", "changed",
				versionLine(last.Version, last.At, last.By, last.Reason))
		}
		return err
	}
	return fmt.Errorf("%w: %q", headgate.ErrUnknownLimit, name)
}

// knows returns an error unless a server has a limit of a name.
func (r *remote) knows(cmd *cobra.Command, name string) error {
	c, err := r.catalogue(cmd)
	if err == nil && !slices.ContainsFunc(c.Limits, func(l api.CatalogLimit) bool { return l.Name == name }) {
		err = fmt.Errorf("%w: %q", headgate.ErrUnknownLimit, name)
	}
	return err
}

// history lists versions of a server's catalogue.
func (r *remote) history(cmd *cobra.Command, name string, most int, asJSON bool) error {
	v, err := r.versions(cmd, name, most)
	if err != nil {
		return err
	}
	if len(v.Versions) == 0 && name != "" { // a limit that was removed has a history
		if err := r.knows(cmd, name); err != nil {
			return err
		}
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), v.Versions)
	}
	for i := range v.Versions {
		one := &v.Versions[i]
		fmt.Fprintln(cmd.OutOrStdout(), versionLine(one.Version, one.At, one.By, one.Reason))
		for _, line := range one.Changes {
			fmt.Fprintln(cmd.OutOrStdout(), "  "+line)
		}
	}
	return nil
}

// rollback makes the limits of a server what they were after a version.
func (c *changing) rollback(cmd *cobra.Command, r *remote, version int64, names []string) error {
	in := api.Rollback{Version: version, Limits: names, Reason: c.reason, DryRun: true}
	var plan api.Changed
	if err := r.call(cmd.Context(), http.MethodPost, "/v1/rollback", &in, &plan); err != nil {
		return err
	}
	for _, change := range plan.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), change.Text)
	}
	if c.dry {
		return nil
	}
	if len(plan.Changes) > 0 {
		if err := c.agreed(cmd, changeIt); err != nil {
			return err
		}
	}
	in.DryRun, in.Seen = false, &plan.Version
	var out api.Changed
	if err := r.call(cmd.Context(), http.MethodPost, "/v1/rollback", &in, &out); err != nil {
		return err
	}
	made(cmd, plan.Version, out.Version)
	return nil
}
