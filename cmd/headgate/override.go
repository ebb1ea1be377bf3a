package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
)

// ending is when something that is changed shall be over.
type ending struct {
	after string
	until string
}

func (e *ending) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.after, "for", "", "how long it is in force, such as 1h or 30d; empty: until it is removed")
	cmd.Flags().StringVar(&e.until, "until", "", "until when it is in force, such as 2027-01-31T18:00:00Z")
}

// end is the time by the store's clock; zero: there is none.
func (e *ending) end(c *catalog.Catalog) (time.Time, error) {
	switch {
	case e.after != "" && e.until != "":
		return time.Time{}, headgate.Invalid("until", "stands beside --for; say one or the other")
	case e.after != "":
		d, err := headgate.ParsePeriod(e.after)
		if err != nil {
			return time.Time{}, fmt.Errorf("--for: %w", err)
		}
		return c.Now().Add(d), nil
	case e.until != "":
		at, err := time.Parse(time.RFC3339, e.until)
		if err != nil {
			return at, headgate.Invalid("until", "%q is not a time such as 2027-01-31T18:00:00Z", e.until)
		}
		return at, nil
	}
	return time.Time{}, nil
}

func newOverrideCommand() *cobra.Command {
	var o overriding
	cmd := &cobra.Command{
		Use:   "override [LIMIT [KEY [NEW LIMIT]]]",
		Short: "Give one key another limit, for a time or for good; or list what was given",
		Long: "Give one key, or all keys that begin with a text, another limit in the place of a named one.\n" +
			"Without a new limit the overrides are listed: all, those of a limit, or that of a key.\n\n" +
			"What the key has used stays; headgate reset forgets it. Every server and program feels the\n" +
			"change within two seconds; its end is the same instant for all of them, by the store's clock.\n" +
			"Of several the first that there is holds: the override of the key, that of the longest prefix,\n" +
			"the plan of the key, that of the longest prefix, the limit itself.\n\n" +
			"A server is asked for single keys; --prefix and --until need a store.",
		Example: "  headgate override login bob 'sliding-log 50/1m' --for 1h --reason 'migrates his mail'\n" +
			"  headgate override api acme/ unlimited --prefix\n" +
			"  headgate override login bob --remove",
		Args: cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asked, err := askServer(cmd, func(r *remote) error { return o.atServer(cmd, r, args) }); asked {
				return err
			}
			switch {
			case o.remove:
				return changed(cmd, func(c *catalog.Catalog) (int64, error) { return o.removeOne(cmd, c, args) })
			case len(args) == 3:
				return changed(cmd, func(c *catalog.Catalog) (int64, error) { return o.set(cmd, c, args) })
			}
			return catalogued(cmd, func(c *catalog.Catalog) error { return o.list(cmd, c, args) })
		},
	}
	addSettings(cmd, askedSettings...)
	cmd.MarkFlagsMutuallyExclusive("store", "server")
	o.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.prefix, "prefix", false, "for all keys that begin with KEY")
	f.BoolVar(&o.remove, "remove", false, "remove the override")
	f.StringVar(&o.reason, "reason", "", "why, for the history")
	f.BoolVar(&o.json, "json", false, "list as JSON")
	f.IntVar(&o.most, "max", 1000, "list so many at most")
	return cmd
}

// overriding are the flags of headgate override.
type overriding struct {
	ending
	prefix, remove, json bool
	reason               string
	most                 int
}

func (o *overriding) set(cmd *cobra.Command, c *catalog.Catalog, args []string) (int64, error) {
	l, err := headgate.ParseNamed(args[0], args[2])
	if err != nil {
		return 0, err
	}
	until, err := o.end(c)
	if err != nil {
		return 0, err
	}
	return c.Override(cmd.Context(), by(o.reason), catalog.Override{
		Limit: l, Key: args[1], Prefix: o.prefix, Until: until, Reason: o.reason,
	})
}

var errRemoveWhat = headgate.Invalid("remove", "needs LIMIT and KEY, and no new limit")

func (o *overriding) removeOne(cmd *cobra.Command, c *catalog.Catalog, args []string) (int64, error) {
	if len(args) != 2 {
		return 0, errRemoveWhat
	}
	return c.RemoveOverride(cmd.Context(), by(o.reason), args[0], args[1], o.prefix)
}

// overrideLine is an override as JSON.
type overrideLine struct {
	Limit    string     `json:"limit"`
	Key      string     `json:"key"`
	Prefix   bool       `json:"prefix,omitempty"`
	Override string     `json:"override"`
	Until    *time.Time `json:"until,omitempty"`
	Over     bool       `json:"over,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// checkList says what is wrong with the flags of a list.
func (o *overriding) checkList() error {
	if o.most < 1 {
		return headgate.Invalid("max", "%d is not a number above 0", o.most)
	}
	if o.after != "" || o.until != "" || o.reason != "" {
		return headgate.Invalid("arguments", "LIMIT, KEY and the new limit are needed to override")
	}
	return nil
}

// chosen reports whether arguments ask for an override: for all, for those of a limit, or for that of a key.
func chosen(args []string, limit, key string, prefix bool) bool {
	return len(args) < 1 || limit == args[0] &&
		(len(args) < 2 || key == args[1] || prefix && strings.HasPrefix(args[1], key))
}

func (o *overriding) list(cmd *cobra.Command, c *catalog.Catalog, args []string) error {
	if err := o.checkList(); err != nil {
		return err
	}
	found, err := c.PrefixOverrides()
	if err != nil {
		return err
	}
	if len(args) == 2 {
		_, more, err := c.Has(cmd.Context(), args[1], args[0])
		if err != nil {
			return err
		}
		found = append(found, more...)
	} else {
		limit := ""
		if len(args) == 1 {
			limit = args[0]
		}
		more, err := c.Overrides(cmd.Context(), limit, "", o.most)
		if err != nil {
			return err
		}
		found = append(found, more...)
	}
	lines := []overrideLine{}
	for _, f := range found {
		if !chosen(args, f.Limit.Name(), f.Key, f.Prefix) {
			continue
		}
		line := overrideLine{
			Limit: f.Limit.Name(), Key: f.Key, Prefix: f.Prefix, Override: f.Limit.String(), Reason: f.Reason,
		}
		if !f.Until.IsZero() {
			line.Until, line.Over = &f.Until, !f.Until.After(c.Now())
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 && len(args) > 0 {
		if _, err := c.Get(args[0]); err != nil {
			return err
		}
	}
	return o.print(cmd, lines)
}

// print prints overrides, as many as may be listed.
func (o *overriding) print(cmd *cobra.Command, lines []overrideLine) error {
	lines = lines[:min(len(lines), o.most)]
	if o.json {
		return printJSON(cmd.OutOrStdout(), lines)
	}
	return printOverrides(cmd.OutOrStdout(), lines)
}

func printOverrides(w io.Writer, lines []overrideLine) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LIMIT\tKEY\tIN FORCE\tUNTIL\tREASON")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.Limit, keyOrPrefix(l.Key, l.Prefix), l.Override, end(l.Until, l.Over),
			text(l.Reason))
	}
	return t.Flush()
}

// keyOrPrefix writes a key, or all that begin so.
func keyOrPrefix(k string, prefix bool) string {
	if prefix {
		return key(k) + "*"
	}
	return key(k)
}

// end writes until when something is in force.
func end(until *time.Time, over bool) string {
	switch {
	case until == nil:
		return "-"
	case over:
		return "over since " + until.Local().Format("2006-01-02 15:04:05 MST")
	}
	return until.Local().Format("2006-01-02 15:04:05 MST")
}
