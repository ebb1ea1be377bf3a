package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
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

// end is what --until says; nil: nothing.
func (e *ending) end() (*time.Time, error) {
	switch {
	case e.until == "":
		return nil, nil
	case e.after != "":
		return nil, headgate.Invalid("until", "stands beside --for; say one or the other")
	}
	at, err := time.Parse(time.RFC3339, e.until)
	if err != nil {
		return nil, headgate.Invalid("until", "%q is not a time such as 2027-01-31T18:00:00Z", e.until)
	}
	return &at, nil
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
			return ask(cmd, func(s answerer) error { return o.run(cmd, s, args) })
		},
	}
	addAsked(cmd)
	o.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.prefix, "prefix", false, "for all keys that begin with KEY")
	f.BoolVar(&o.remove, "remove", false, "remove the override")
	f.StringVar(&o.reason, "reason", "", "why, for the history")
	f.BoolVar(&o.json, "json", false, "list as JSON")
	f.IntVar(&o.most, "max", 1000, "list at most this many")
	return cmd
}

// overriding are the flags of headgate override.
type overriding struct {
	ending
	prefix, remove, json bool
	reason               string
	most                 int
}

func (o *overriding) run(cmd *cobra.Command, s answerer, args []string) error {
	if err := needsStore(cmd, s, "prefix", "until"); err != nil {
		return err
	}
	in := api.Override{Remove: o.remove, Reason: o.reason, For: o.after}
	var err error
	switch {
	case o.remove && len(args) != 2:
		return headgate.Invalid("remove", "needs LIMIT and KEY, and no new limit")
	case o.remove:
	case len(args) == 3:
		in.Override = args[2]
	default:
		return o.list(cmd, s, args)
	}
	in.Limit, in.Key, in.Prefix = args[0], args[1], o.prefix
	if in.Until, err = o.end(); err != nil {
		return err
	}
	out, err := s.Override(cmd.Context(), &in)
	return told(cmd, out, err, false)
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

// list lists the overrides: all, those of a limit, or that of a key.
func (o *overriding) list(cmd *cobra.Command, s answerer, args []string) error {
	if o.most < 1 {
		return headgate.Invalid("max", "%d is not a number above 0", o.most)
	}
	if o.after != "" || o.until != "" || o.reason != "" {
		return headgate.Invalid("arguments", "LIMIT, KEY and the new limit are needed to override")
	}
	lines := []overrideLine{}
	tell := func(l overrideLine) int {
		if len(args) < 1 || l.Limit == args[0] &&
			(len(args) < 2 || l.Key == args[1] || l.Prefix && strings.HasPrefix(args[1], l.Key)) {
			lines = append(lines, l)
		}
		return len(lines)
	}
	var err error
	switch s := s.(type) {
	case *remote:
		err = o.served(cmd.Context(), s, tell)
	case *local:
		err = o.stored(cmd.Context(), s, args, tell)
	}
	if err != nil {
		return err
	}
	if len(lines) == 0 && len(args) > 0 {
		if _, err := s.Meaning(cmd.Context(), args[0]); err != nil {
			return err
		}
	}
	lines = lines[:min(len(lines), o.most)]
	if o.json {
		return printJSON(cmd.OutOrStdout(), lines)
	}
	return printOverrides(cmd.OutOrStdout(), lines)
}

// served tells of all overrides of a server that are in force, until enough were found.
func (o *overriding) served(ctx context.Context, r *remote, tell func(overrideLine) (found int)) error {
	for q := (api.OverridesQuery{Max: 1000}); ; {
		page, err := get[api.Overrides](ctx, r, "/v1/overrides", &q)
		if err != nil {
			return err
		}
		found := 0
		for i := range page.Overrides {
			f := &page.Overrides[i]
			line := overrideLine{Limit: f.Limit, Key: f.Key, Prefix: f.Prefix, Override: f.Override, Reason: f.Reason}
			if f.Until != nil {
				until := time.UnixMicro(*f.Until).UTC()
				line.Until = &until
			}
			found = tell(line)
		}
		if page.NextLimit == "" || found >= o.most {
			return nil
		}
		q.AfterLimit, q.AfterKey = page.NextLimit, page.NextKey
	}
}

// stored tells of the overrides that a store has for arguments, perhaps of more, and also of those that are over.
func (o *overriding) stored(ctx context.Context, l *local, args []string, tell func(overrideLine) (found int)) error {
	c, err := l.names.Kept()
	if err != nil {
		return err
	}
	list, err := c.PrefixOverrides()
	if err != nil {
		return err
	}
	var more []catalog.Override
	switch len(args) {
	case 0:
		more, err = c.Overrides(ctx, "", "", o.most)
	case 1:
		more, err = c.Overrides(ctx, args[0], "", o.most)
	default:
		_, more, err = c.Has(ctx, args[1], args[0])
	}
	for _, f := range append(list, more...) {
		line := overrideLine{
			Limit: f.Limit.Name(), Key: f.Key, Prefix: f.Prefix, Override: f.Limit.String(), Reason: f.Reason,
		}
		if !f.Until.IsZero() {
			line.Until, line.Over = &f.Until, !f.Until.After(c.Now())
		}
		tell(line)
	}
	return err
}

func printOverrides(w io.Writer, lines []overrideLine) error {
	t := newTable(w, "LIMIT\tKEY\tIN FORCE\tUNTIL\tREASON")
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
