package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store/memory"
)

func newExplainCommand() *cobra.Command {
	var query queryFlags
	var client string
	cmd := &cobra.Command{
		Use:   "explain LIMIT | 'METHOD URL' [HEADER...]",
		Short: "Say what a limit means, or which rule decides about a request and why",
		Long: "Say what a limit means, and the most that it lets pass; or which rule of the config file decides\n" +
			"about an HTTP request, what it is charged, what is left of each limit, and why no other rule decides.\n" +
			"Nothing is charged. A request would pass now: exit 0, it would be refused: 1, error: 2.\n\n" +
			"A request is written as 'GET /path?query', its headers as 'Name: value'; or all in one argument, a\n" +
			"line each. With --server the rules of that server decide.\n\n" + aboutLimit,
		Example: "  headgate explain 'token-bucket 10/s burst 10'\n" +
			"  headgate explain --config headgate.yaml 'POST https://example.org/login' 'X-Api-Key: k1' " +
			"--client 192.0.2.1",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, ok := parseRequest(args)
			if ok {
				r.Client = client
				return query.explain(cmd, r)
			}
			switch {
			case len(args) > 1:
				return headgate.Invalid("request", "%.100q is not the beginning of a request such as GET /path",
					args[0])
			case bool(query.json):
				return headgate.Invalid("output", "json goes with a request only")
			case client != "":
				return headgate.Invalid("client", "--client goes with a request only")
			}
			l, err := resolveLimit(cmd, args[0])
			if errors.Is(err, headgate.ErrUnknownLimit) {
				named, exists, c, findErr := examinePlace(cmd)
				if findErr != nil {
					return findErr
				}
				if named || exists && c.File == "" {
					return withBackend(cmd, func(s backend) error { return showLimit(cmd, s, args[0]) })
				}
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), l.Explain())
			return nil
		},
	}
	query.addFlags(cmd)
	cmd.Flags().StringVar(&client, "client", "", "`address` of the client of the request")
	return cmd
}

// parseRequest reads a request from its first line and its headers, and reports whether it is one.
func parseRequest(args []string) (*api.Explain, bool) {
	var lines []string
	for _, arg := range args {
		for line := range strings.Lines(arg) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		return nil, false
	}
	words := strings.Fields(lines[0])
	if len(words) == 3 && strings.HasPrefix(words[2], "HTTP/") {
		words = words[:2]
	}
	if len(words) != 2 || words[1] != "*" && !strings.HasPrefix(words[1], "/") && !strings.Contains(words[1], "://") {
		return nil, false
	}
	return &api.Explain{Method: words[0], URI: words[1], Headers: lines[1:]}, true
}

// explain prints which rule decides about a request. If the request is refused, it returns errRefused.
func (f *queryFlags) explain(cmd *cobra.Command, r *api.Explain) error {
	return withBackendOrEmptyStore(cmd, func(s backend) error {
		e, err := callExplain(cmd.Context(), s, r)
		if err != nil {
			return err
		}
		err = f.json.print(cmd.OutOrStdout(), e, func(w io.Writer) error { return printExplanation(w, e) })
		if err == nil && !e.Allowed {
			err = errRefused
		}
		return err
	})
}

// examinePlace reports whether the command, its environment or its config names a server or a store, and whether the
// file of the store exists. It also returns the config.
func examinePlace(cmd *cobra.Command) (named, exists bool, c *config.Config, err error) {
	url, err := serverOf(cmd)
	if err != nil {
		return false, false, nil, err
	}
	c, p, err := loadPlace(cmd)
	return url != "" || p.Configured, err == nil && p.File() != "" && !p.Missing(), c, err
}

// withBackendOrEmptyStore calls do with the store or the server, or, if none is named and the default store does not
// exist, with an empty store that has the limits of the config file.
func withBackendOrEmptyStore(cmd *cobra.Command, do func(backend) error) error {
	named, exists, c, err := examinePlace(cmd)
	if err != nil {
		return err
	}
	if named || exists {
		return withBackend(cmd, do)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: there is no store, so the figures are those of keys that have used nothing\n",
		cmd.CommandPath())
	s := memory.New(&memory.Config{Names: true})
	defer s.Close()
	return do(backend{local: newService(s, c, c)})
}

// printExplanation prints which rule decides, the figures of its limits, and why the others do not decide.
func printExplanation(w io.Writer, e *api.Explanation) error {
	at := ""
	if e.At != "" {
		at = " (" + e.At + ")"
	}
	fmt.Fprintf(w, "%s  %s%s\n", formatAnswer(e.Allowed), e.Why, at)
	switch e.Mode {
	case "shadow":
		fmt.Fprintln(w, "mode shadow: it is charged, and nothing is refused")
	case "advise":
		fmt.Fprintln(w, "mode advise: nothing is charged, and nothing is refused")
	}
	if e.Problem != nil {
		fmt.Fprintln(w, e.Problem.Detail)
	}
	if e.Once {
		fmt.Fprintln(w, "it has an id: it is charged once")
	}
	t := newTable(w)
	if e.Decision != nil {
		t.row("LIMIT", "KEY", "COST", "KEEP", "ALLOWED", "REMAINING", "RETRY AFTER")
	}
	for i := range e.Charges {
		c := &e.Charges[i]
		f := figuresOf(e.Decision, i)
		keep := cmp.Or(c.Keep, "-")
		if f == nil { // the charge was not decided
			t.row(c.Limit, quoteKey(c.Key), c.Cost.String(), keep, "-", "-", "-")
			continue
		}
		t.row(c.Limit, quoteKey(c.Key), c.Cost.String(), keep, yesNo(f.Allowed),
			formatAmount(f.Remaining)+" of "+formatAmount(f.Capacity), formatDelay(f.RetryAfterMS))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range e.Charges {
		if c := &e.Charges[i]; c.Settle != "" {
			fmt.Fprintf(w, "%s: the response says the true cost in %s\n", c.Limit, c.Settle)
		}
	}
	if len(e.Rules) == 0 {
		return nil
	}
	t.row("RULE", "MATCHES", "WHY")
	for _, v := range e.Rules {
		t.row(v.Rule, yesNo(v.Matches), v.Why)
	}
	return t.Flush()
}

// figuresOf returns the figures of the charge with an index, or nil if it was not decided.
func figuresOf(d *api.Decision, charge int) *api.Figures {
	if len(d.Each) == 0 {
		return &api.Figures{
			Allowed: d.Allowed, Capacity: d.Capacity, Remaining: d.Remaining, RetryAfterMS: d.RetryAfterMS,
		}
	}
	for i := range d.Each {
		if d.Each[i].Charge == charge {
			return &d.Each[i]
		}
	}
	return nil
}
