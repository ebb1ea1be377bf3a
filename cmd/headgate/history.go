package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

func newHistoryCommand() *cobra.Command {
	var a asking
	var since string
	var max int
	cmd := &cobra.Command{
		Use:   "history LIMIT KEY",
		Short: "Show the newest attempts of a key, of a limit that keeps them",
		Long: "Show the newest attempts of a key, the last one first. Nothing is charged.\n\n" +
			"A limit with history, such as sliding-log 5/1m history 1d, keeps all attempts, the refused ones too. A\n" +
			"sliding-log without history keeps what it has admitted and still counts. Other limits keep none.",
		SuggestFor:        []string{"log", "attempts"},
		Example:           "  headgate history login alice --since 1h",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: limitFirst,
		RunE: func(cmd *cobra.Command, args []string) error {
			var young time.Duration
			if err := checkAttempts(max); err != nil {
				return err
			}
			if since != "" {
				var err error
				if young, err = parseSince(since); err != nil {
					return err
				}
			}
			return ask(cmd, func(s answerer) error {
				st, err := s.Inspect(cmd.Context(), inspection(args[0], args[1], max))
				if err != nil {
					return err
				}
				list := attempts(st, young)
				if len(list) == max { // all of them are young
					fmt.Fprintf(cmd.ErrOrStderr(), "there may be more: the newest %d are shown\n", max)
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), struct {
						Limit   string        `json:"limit"`
						Key     string        `json:"key"`
						At      int64         `json:"at"`
						History []api.Attempt `json:"history"`
					}{st.Limit, st.Key, st.At, list})
				}
				return printHistory(cmd.OutOrStdout(), st, list)
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&since, "since", "", "only attempts of the last `PERIOD`, such as 15m")
	cmd.Flags().IntVar(&max, "max", 20, "show at most this many attempts, up to 10000")
	return cmd
}

// inspection asks about a key, with at most max attempts, or as many as are usual if max is 0.
func inspection(limit, key string, attempts int) *api.InspectRequest {
	return &api.InspectRequest{Subject: api.Subject{Limit: limit, Key: key}, Attempts: attempts}
}

// checkAttempts says what is wrong with --max of attempts.
func checkAttempts(max int) error {
	if max < 1 || max > api.MaxAttempts {
		return headgate.Invalid("max", "%d is not a number from 1 to %d", max, api.MaxAttempts)
	}
	return nil
}

func parseSince(text string) (time.Duration, error) {
	d, err := headgate.ParsePeriod(text)
	if err != nil {
		return 0, headgate.Invalid("since", "%.40q is not a length of time such as 15m", text)
	}
	return d, nil
}

// attempts are those of a key that are not older than young, or all if that is 0.
func attempts(st *api.Status, young time.Duration) []api.Attempt {
	list := make([]api.Attempt, 0, len(st.History))
	for _, a := range st.History {
		if young == 0 || a.At >= st.At-young.Microseconds() {
			list = append(list, a)
		}
	}
	return list
}

func printHistory(w io.Writer, st *api.Status, list []api.Attempt) error {
	if len(list) == 0 {
		_, err := fmt.Fprintf(w, "no attempts of %s are known%s\n", key(st.Key), whyNone(st))
		return err
	}
	t := newTable(w, "AT\tANSWER\tCOST\tNUMBER")
	for _, a := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t#%d\n", instant(a.At), answerOf(a), a.Cost, a.Number)
	}
	return t.Flush()
}

func answerOf(a api.Attempt) string {
	if a.Allowed {
		return "allowed"
	}
	return "refused"
}

// whyNone says why there are no attempts, where that is due to the limit.
func whyNone(st *api.Status) string {
	limit, err := headgate.Parse(st.Rule)
	if err != nil || limit.Params().History > 0 || len(st.History) > 0 {
		return ""
	}
	return ": " + st.Rule + " keeps no history; sliding-log AMOUNT/PERIOD history PERIOD does"
}
