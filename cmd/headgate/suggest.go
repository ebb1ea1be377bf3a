package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/replay"
)

// suggestOptions are the flags of `headgate suggest`.
type suggestOptions struct {
	logOptions
	refuse  string
	of      string
	periods []string
	json    bool
}

// newSuggestCommand returns `headgate suggest`.
func newSuggestCommand() *cobra.Command {
	o := suggestOptions{}
	cmd := &cobra.Command{
		Use:   "suggest --key FIELD LOG...",
		Short: "Name limits that would refuse a chosen share of a log",
		Long: `Find limits that would have refused at most a share of the requests of access logs,
or of their keys. For each period it names the token bucket that lets least pass within
such a period, and the tightest sliding and fixed window, all with round numbers. It
also shows what the keys ask for at most within a second, a minute, an hour and a day,
what other bursts and rates would do, and what each limit does to the busiest keys.

The figures are those of headgate replay for the same limit and the same flags. ` + aboutLogs,
		Example: `  headgate suggest --key ip access.log
  headgate suggest --key user --refuse 1% --of keys --period 1s,1m access.log*
  headgate suggest --key ip,path --where method=POST --json access.log`,
		Args: logNames,
		RunE: o.run,
	}
	f := cmd.Flags()
	o.flags(cmd)
	f.StringVar(&o.refuse, "refuse", strconv.FormatFloat(100*replay.DefaultRefuse, 'g', -1, 64)+"%",
		"the `share` that may be refused, such as 0.2% or 0.002")
	f.StringVar(&o.of, "of", "requests", "`whose` share it is: requests or keys")
	f.StringSliceVar(&o.periods, "period", []string{"1m", "1h", "1d"}, "the `periods` of the limits")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

func (o *suggestOptions) run(cmd *cobra.Command, logs []string) error {
	if err := o.complete(cmd); err != nil {
		return err
	}
	ask, err := replay.ParseAsk(o.refuse, o.of, o.periods)
	if err != nil {
		return ofFlag(err)
	}
	bar := newBar(cmd.ErrOrStderr())
	o.Progress = bar.show
	requests, err := replay.Read(cmd.Context(), o.key, logs, &o.Config)
	var found *replay.Suggestion
	if err == nil {
		found, err = requests.Suggest(cmd.Context(), ask)
	}
	bar.clear()
	switch {
	case err != nil:
		return err
	case o.json:
		return found.WriteJSON(cmd.OutOrStdout())
	}
	return found.WriteText(cmd.OutOrStdout())
}
