package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/replay"
)

// aboutLogs describes FIELD and LOG for help texts.
const aboutLogs = `FIELD is ip, user,
path (without query and fragment), method, status or another field of the format: in
JSON logs the path of a value such as request.headers.Host.0, in CSV and IIS logs a
column. Several fields with commas between them make one key. ip is the network of 64
bits of an IPv6 address, as for the middleware; ip/128 is the address, ip/48 a site.

LOG is a file, which may be packed with gzip, or - for standard input: a log of a server,
or of its container. Logs need not be in order. Without --format the format is found out
from the first lines of each log; a log that is less than half of that format is refused,
and so is one without a request.
Lines that cannot be read are counted, with the reason and the first of each. In an sshd
log, every line about a failed password or an invalid user counts. What a client sent in
place of a request has the method - and is its own path.`

// logOptions are the flags of commands that read logs.
type logOptions struct {
	replay.Config
	keys         []string // one
	key          string
	format       string
	since, until string
	proxies      []string
}

func (o *logOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.keys, "key", nil, "the `field` to limit by: ip, user, path, method, status, ip/48, ip,path ...")
	f.StringVar(&o.format, "format", "", "the `format` of the logs: "+accesslog.Names()+" (default: found out)")
	f.StringArrayVar(&o.Where, "where", nil,
		"only requests for which this `condition` holds: method=POST, status!=200, path~^/api/, agent!~bot")
	f.StringVar(&o.since, "since", "", "only requests from this `time` on, such as 2026-05-01 or 2026-05-01T12:00:00Z")
	f.StringVar(&o.until, "until", "", "only requests before this `time`")
	f.StringVar(&o.Time, "time", "", "JSON and CSV: the `field` with the time (default: found by its usual names)")
	f.StringVar(&o.TimeFormat, "time-format", "",
		"the `format` of that field for strptime, such as '%d.%m.%Y %H:%M:%S'; without a zone it is UTC (default: RFC "+
			"3339, a number since the epoch, and others)")
	f.StringSliceVar(&o.proxies, "proxy", nil, "`network` such as 10.0.0.0/8, or address, of proxies: of a list of "+
		"addresses, the last one that is none of theirs is the client (default private and loopback addresses)")
	f.StringVar(&o.Cost, "cost", "", "the `field` with the cost of a request, such as bytes (default: each costs 1)")
	f.StringVar(&o.Settle, "settle", "",
		"format usage: the `field` with what was used in the end (default: found by its usual names)")
	f.IntVar(&o.Top, "top", replay.DefaultTop, "`how many` of the keys refused most to name")
	f.IntVar(&o.Year, "year", 0, "the `year` of the first line of a log that writes none (default: by the file's date)")
	f.BoolVar(&o.Attempts, "attempts", false,
		"sshd: count attempts, not lines: a pair of lines once, a repeated message as often as it says")
	_ = cmd.RegisterFlagCompletionFunc("format", completeFormat) // there is such a flag
}

// completeFormat completes the name of a format.
func completeFormat(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	for _, format := range accesslog.Formats() {
		names = append(names, cobra.CompletionWithDesc(string(format), format.About()))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// logNames refuses a command line without logs.
func logNames(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("log: none is named; - is standard input")
	}
	return nil
}

// complete checks the flags, and takes the rest of what they say into the Config.
func (o *logOptions) complete(cmd *cobra.Command) (err error) {
	switch {
	case len(o.keys) == 0 || o.keys[0] == "":
		return errors.New("--key: is missing: ip, user, path, method, status, or a JSON path")
	case len(o.keys) > 1: // of two, the last would win unnoticed
		return fmt.Errorf("--key: is given %d times; several fields make one key as in --key %s", len(o.keys),
			strings.Join(o.keys, ","))
	case o.Top < 0:
		return fmt.Errorf("--top: %d is negative", o.Top)
	case o.Top == 0:
		o.Top = -1 // none, as asked
	}
	o.key, o.Format, o.Stdin = o.keys[0], accesslog.Format(strings.ToLower(o.format)), cmd.InOrStdin()
	if o.Since, err = replay.ParseTime("since", o.since); err == nil {
		o.Until, err = replay.ParseTime("until", o.until)
	}
	if err == nil && len(o.proxies) > 0 {
		if o.Proxies, err = httpkey.ParseProxies(o.proxies...); err != nil {
			return fmt.Errorf("--proxy: %w", err)
		}
	}
	return ofFlag(err)
}

// ofFlag says which flag is wrong.
func ofFlag(err error) error {
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return fmt.Errorf("--%s: %s", wrong.Field, wrong.Problem)
	}
	return err
}
