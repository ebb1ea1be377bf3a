package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
)

// endFlags has the flags for the end of an assignment or override.
type endFlags struct {
	period string // value of --for
	until  string
}

func (e *endFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.period, "for", "",
		"how `long` it is in force, such as 1h or 30d; empty: until it is removed")
	cmd.Flags().StringVar(&e.until, "until", "", "until which `time` it is in force, such as 2027-01-31T18:00:00Z")
}

// end returns the time of --until, or nil without it.
func (e *endFlags) end() (*time.Time, error) {
	switch {
	case e.until == "":
		return nil, nil
	case e.period != "":
		return nil, headgate.Invalid("until", "stands beside --for; say one or the other")
	}
	at, err := time.Parse(time.RFC3339, e.until)
	if err != nil {
		return nil, headgate.Invalid("until", "%q is not a time such as 2027-01-31T18:00:00Z", e.until)
	}
	return &at, nil
}

func newOverrideCommand() *cobra.Command {
	var override overrideFlags
	cmd := &cobra.Command{
		Use:   "override [KEY [LIMIT [NEW-LIMIT]]]",
		Short: "Give one key another limit, for a time or for good; or list what was given",
		Long: "Give one key, or all keys that begin with a text, another limit in the place of a named one.\n" +
			"Without a new limit the overrides are listed: all, those of a key, or that of its LIMIT; --limit lists\n" +
			"those of a limit. With --remove and without a LIMIT all overrides of the key are removed.\n\n" +
			"What the key has used stays; headgate reset forgets it. Every server and program feels the\n" +
			"change within two seconds; its end is the same instant for all of them, by the store's clock.\n" +
			"Of several the first that there is holds: the override of the key, that of the longest prefix,\n" +
			"the plan of the key, that of the longest prefix, the limit itself.\n\n" +
			"A server is asked for single keys; --prefix and --until need a store.",
		Example: "  headgate override bob login 'sliding-log 50/1m' --for 1h --reason 'migrates his mail'\n" +
			"  headgate override acme/ api unlimited --prefix\n" +
			"  headgate override bob login --remove",
		Args:              cobra.MaximumNArgs(3),
		ValidArgsFunction: completeArgs(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withBackend(cmd, func(s backend) error { return override.run(cmd, s, args) })
		},
	}
	addPlaceSettings(cmd)
	override.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&override.prefix, "prefix", false, "for all keys that begin with KEY")
	f.BoolVar(&override.remove, "remove", false, "remove the override")
	f.StringVar(&override.reason, "reason", "", "`why`, for the history")
	f.StringVar(&override.limit, "limit", "", "list the overrides of this `limit`")
	override.json.addFlag(cmd)
	f.IntVarP(&override.maxLines, "max", "n", 1000, "list at most this `number`")
	return cmd
}

type overrideFlags struct {
	endFlags
	prefix, remove bool
	json           outputFlag
	reason, limit  string
	maxLines       int
}

func (o *overrideFlags) run(cmd *cobra.Command, s backend, args []string) error {
	if err := needsStore(cmd, s, "prefix", "until"); err != nil {
		return err
	}
	in := api.Override{Remove: o.remove, Reason: o.reason, For: o.period, Prefix: o.prefix}
	var err error
	switch {
	case o.remove && (len(args) < 1 || len(args) > 2):
		return headgate.Invalid("remove", "needs KEY, and no new limit")
	case o.limit != "" && (o.remove || len(args) > 1):
		return headgate.Invalid("limit", "--limit lists; to change one write KEY LIMIT")
	case o.remove:
		return o.removeOverrides(cmd, s, &in, args)
	case len(args) < 3:
		return o.list(cmd, s, args)
	}
	in.Key, in.Limit, in.Override = args[0], args[1], args[2]
	if in.Until, err = o.end(); err != nil {
		return err
	}
	out, err := callOverride(cmd.Context(), s, &in)
	return printChanged(cmd, out, err, false)
}

// removeOverrides removes the override of a key for the limit in args, or without one all overrides of the key.
func (o *overrideFlags) removeOverrides(cmd *cobra.Command, s backend, in *api.Override, args []string) error {
	in.Key = args[0]
	limits := args[1:]
	if len(limits) == 0 {
		lines, err := o.find(cmd, s, args)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if l.Key == in.Key && l.Prefix == in.Prefix {
				limits = append(limits, l.Limit)
			}
		}
		if len(limits) == 0 {
			return headgate.Invalid("key", "%s has no overrides", quoteKey(in.Key))
		}
	}
	for _, in.Limit = range limits {
		out, err := callOverride(cmd.Context(), s, in)
		if err := printChanged(cmd, out, err, false); err != nil {
			return err
		}
	}
	return nil
}

type overrideLine struct {
	Limit    string     `json:"limit"`
	Key      string     `json:"key"`
	Prefix   bool       `json:"prefix,omitempty"`
	Override string     `json:"override"`
	Until    *time.Time `json:"until,omitempty"`
	Over     bool       `json:"over,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// list prints the overrides: all, or those of the given key, limit or both.
func (o *overrideFlags) list(cmd *cobra.Command, s backend, args []string) error {
	if o.maxLines < 1 {
		return headgate.Invalid("max", "%d is not a number above 0", o.maxLines)
	}
	if o.period != "" || o.until != "" || o.reason != "" {
		return headgate.Invalid("arguments", "KEY, LIMIT and the new limit are needed to override")
	}
	lines, err := o.find(cmd, s, args)
	if err != nil {
		return err
	}
	if limit := o.limitOf(args); len(lines) == 0 && limit != "" {
		if _, err := explainLimit(cmd.Context(), s, limit); err != nil {
			return err
		}
	}
	lines = lines[:min(len(lines), o.maxLines)]
	return o.json.print(cmd.OutOrStdout(), lines, func(w io.Writer) error {
		t := newTable(w, "LIMIT", "KEY", "IN FORCE", "UNTIL", "REASON")
		for _, l := range lines {
			t.row(l.Limit, keyOrPrefix(l.Key, l.Prefix), l.Override, formatEnd(l.Until, l.Over), quoteText(l.Reason))
		}
		return t.Flush()
	})
}

// limitOf returns the limit whose overrides are listed, or "" for all limits.
func (o *overrideFlags) limitOf(args []string) string {
	if len(args) > 1 {
		return args[1]
	}
	return o.limit
}

// find returns all overrides, or the overrides of the given key, limit or both.
func (o *overrideFlags) find(cmd *cobra.Command, s backend, args []string) ([]overrideLine, error) {
	lines, limit := []overrideLine{}, o.limitOf(args)
	if limit != "" {
		var err error
		if limit, err = cellsOf(cmd.Context(), s, limit); err != nil {
			return nil, err
		}
	}
	add := func(l overrideLine) int {
		if (limit == "" || l.Limit == limit) &&
			(len(args) < 1 || l.Key == args[0] || l.Prefix && strings.HasPrefix(args[0], l.Key)) {
			lines = append(lines, l)
		}
		return len(lines)
	}
	if s.local == nil {
		err := o.findAtServer(cmd.Context(), s, add)
		return lines, err
	}
	err := o.findInStore(cmd.Context(), s, args, limit, add)
	return lines, err
}

// findAtServer calls add with the overrides in force at a server, page by page, until add returns at least maxLines.
func (o *overrideFlags) findAtServer(ctx context.Context, s backend, add func(overrideLine) int) error {
	for q := (api.OverridesQuery{Max: 1000}); ; {
		page, err := get[api.Overrides](ctx, s, "/v1/overrides", &q)
		if err != nil {
			return err
		}
		found := 0
		for i := range page.Overrides {
			f := &page.Overrides[i]
			line := overrideLine{Limit: f.Limit, Key: f.Key, Prefix: f.Prefix, Override: f.Override, Reason: f.Reason}
			if f.Until != nil {
				line.Until = new(time.UnixMicro(*f.Until).UTC())
			}
			found = add(line)
		}
		if page.NextLimit == "" || found >= o.maxLines {
			return nil
		}
		q.AfterLimit, q.AfterKey = page.NextLimit, page.NextKey
	}
}

// findInStore calls add with the overrides in a store that args select, and perhaps with others. Some may be over.
func (o *overrideFlags) findInStore(ctx context.Context, s backend, args []string, limit string,
	add func(overrideLine) int,
) error {
	c, err := s.names.StoreCatalog()
	if err != nil {
		return err
	}
	prefixOverrides, err := c.PrefixOverrides()
	if err != nil {
		return err
	}
	var keyOverrides []catalog.Override
	if len(args) == 0 {
		keyOverrides, err = c.Overrides(ctx, limit, "", o.maxLines)
	} else {
		var limits []string
		for _, l := range c.List() {
			limits = append(limits, l.Name())
		}
		_, keyOverrides, err = c.OfKey(ctx, args[0], limits...)
	}
	for _, f := range append(prefixOverrides, keyOverrides...) {
		line := overrideLine{
			Limit: f.Limit.Name(), Key: f.Key, Prefix: f.Prefix, Override: f.Limit.String(), Reason: f.Reason,
		}
		if !f.Until.IsZero() {
			line.Until, line.Over = &f.Until, !f.Until.After(c.Now())
		}
		add(line)
	}
	return err
}

// keyOrPrefix formats a key, or a prefix with a star behind it.
func keyOrPrefix(key string, isPrefix bool) string {
	if isPrefix {
		return quoteKey(key) + "*"
	}
	return quoteKey(key)
}

// formatEnd formats the end of a plan or override.
func formatEnd(until *time.Time, over bool) string {
	switch {
	case until == nil:
		return "-"
	case over:
		return "over since " + formatTime(*until)
	}
	return formatTime(*until)
}
