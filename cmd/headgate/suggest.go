package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
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
	cfg, err := o.config(cmd)
	if err != nil {
		return err
	}
	ask, err := o.ask()
	if err != nil {
		return err
	}
	bar := newReplayBar(cmd.ErrOrStderr())
	cfg.Progress = bar.show
	found, err := replay.Suggest(cmd.Context(), ask, o.key, logs, cfg)
	bar.clear()
	switch {
	case err != nil:
		return err
	case o.json:
		return found.WriteJSON(cmd.OutOrStdout())
	}
	return found.WriteText(cmd.OutOrStdout())
}

// ask is what the flags ask for.
func (o *suggestOptions) ask() (ask replay.Ask, err error) {
	number, percent := strings.CutSuffix(o.refuse, "%")
	ask.Refuse, err = strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		ask.Refuse /= 100
	}
	if err != nil || !(ask.Refuse >= 0 && ask.Refuse < 1) {
		return ask, fmt.Errorf("--refuse: %q is not a share such as 0.2%% or 0.002", o.refuse)
	}
	switch o.of {
	case "requests":
	case "keys":
		ask.Keys = true
	default:
		return ask, fmt.Errorf("--of: %q is neither requests nor keys", o.of)
	}
	seen := map[time.Duration]bool{}
	for _, text := range o.periods {
		d, err := headgate.ParsePeriod(text)
		if err != nil {
			return ask, fmt.Errorf("--period: %w", err)
		}
		if !seen[d] {
			ask.Periods = append(ask.Periods, d)
		}
		seen[d] = true
	}
	if len(ask.Periods) == 0 || len(ask.Periods) > 6 {
		return ask, fmt.Errorf("--period: %d periods; name 1 to 6", len(ask.Periods))
	}
	return ask, nil
}
