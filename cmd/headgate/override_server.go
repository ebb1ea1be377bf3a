package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/server/api"
)

// atServer does at a server what the command asks for.
func (o *overriding) atServer(cmd *cobra.Command, r *remote, args []string) error {
	if err := needsStore(cmd, "prefix", "until"); err != nil {
		return err
	}
	in := api.Override{Remove: o.remove, Reason: o.reason, For: o.after}
	switch {
	case o.remove && len(args) != 2:
		return errRemoveWhat
	case o.remove:
	case len(args) == 3:
		in.Override = args[2]
	default:
		return o.listAtServer(cmd, r, args)
	}
	in.Subject = api.Subject{Limit: args[0], Key: args[1]}
	return r.change(cmd, "/v1/override", &in, false)
}

// listAtServer lists the overrides of a server: all, those of a limit, or that of a key.
func (o *overriding) listAtServer(cmd *cobra.Command, r *remote, args []string) error {
	if err := o.checkList(); err != nil {
		return err
	}
	lines := []overrideLine{}
	const page = 1000
	for q := (api.OverridesQuery{Max: page}); ; {
		var list api.Overrides
		if err := r.call(cmd.Context(), http.MethodGet, "/v1/overrides", &q, &list); err != nil {
			return err
		}
		for i := range list.Overrides {
			f := &list.Overrides[i]
			if !chosen(args, f.Limit, f.Key, f.Prefix) {
				continue
			}
			line := overrideLine{Limit: f.Limit, Key: f.Key, Prefix: f.Prefix, Override: f.Override, Reason: f.Reason}
			if f.Until != nil {
				until := time.UnixMicro(*f.Until).UTC()
				line.Until = &until
			}
			lines = append(lines, line)
		}
		if list.NextLimit == "" || len(lines) >= o.most {
			if len(lines) == 0 && len(args) > 0 {
				if err := r.knows(cmd, args[0]); err != nil {
					return err
				}
			}
			return o.print(cmd, lines)
		}
		q.AfterLimit, q.AfterKey = list.NextLimit, list.NextKey
	}
}
