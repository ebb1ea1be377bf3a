package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/server/config"
)

// aboutLogs describes FIELD and LOG for help texts.
const aboutLogs = `FIELD is ip, user,
path (without query and fragment), method, status or another field of the format: in
JSON logs the path of a value such as request.headers.Host.0, in CSV and IIS logs a
column. Several fields with commas between them make one key. ip is the network of 64
bits of an IPv6 address, as for the middleware; ip/128 is the address, ip/48 a site.

LOG is a file, which may be packed with gzip, bzip2 or zstd, or - for standard input: a log of
a server, or of its container. Logs need not be in order. Without --format the format is found out
from the first lines of each log; a log that is less than half of that format is refused,
and so is one without a request.
Lines that cannot be read are counted, with the reason and the first of each. In an sshd
log, every line about a failed password or an invalid user counts. What a client sent in
place of a request has the method - and is its own path.`

// logFlags has the flags of commands that read logs.
type logFlags struct {
	replay.Config
	keys         []string // values of --key; parse accepts exactly one
	json         outputFlag
	key          string // the one of keys
	format       string
	since, until string
	proxies      []string
}

func (o *logFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	o.json.addFlag(cmd)
	f.StringArrayVar(&o.keys, "key", nil, "the `field` to limit by: ip, user, path, method, status, ip/48, ip,path ...")
	f.StringVar(&o.format, "format", "", "the `format` of the logs: "+accesslog.FormatNames()+" (default: found out)")
	f.StringArrayVar(&o.Where, "where", nil,
		"only requests for which this `condition` holds: method=POST, status!=200, path~^/api/, agent!~bot")
	f.StringVar(&o.since, "since", "", "only requests from this `time` on, such as 2026-05-01 or 2026-05-01T12:00:00Z")
	f.StringVar(&o.until, "until", "", "only requests before this `time`")
	f.StringVar(&o.Time, "time", "", "JSON and CSV: the `field` with the time (default: found by its usual names)")
	f.StringVar(&o.TimeFormat, "time-format", "",
		"the `format` of that field for strptime, such as '%d.%m.%Y %H:%M:%S'; without a zone it is UTC (default: RFC "+
			"3339, a number since the epoch, and others)")
	f.StringSliceVar(&o.proxies, "proxy", nil, "`network` such as 10.0.0.0/8, or address, of proxies: of a list of "+
		"addresses, the last one that is no proxy is the client (default private and loopback addresses)")
	f.StringVar(&o.Cost, "cost", "", "the `field` with the cost of a request, such as bytes (default: each costs 1)")
	f.StringVar(&o.Settle, "settle", "",
		"format usage: the `field` with what was used in the end (default: found by its usual names)")
	f.IntVar(&o.Top, "top", replay.DefaultTop, "`how many` of the keys refused most to name")
	f.IntVar(&o.Year, "year", 0, "the `year` of the first line of a log that writes none (default: by the file's date)")
	f.BoolVar(&o.Attempts, "attempts", false,
		"sshd: count attempts, not lines: a pair of lines once, a repeated message as often as it says")
	_ = cmd.RegisterFlagCompletionFunc("format", completeFormat) // the flag exists
}

func completeFormat(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	for _, format := range accesslog.Formats() {
		names = append(names, cobra.CompletionWithDesc(string(format), format.About()))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func requireLogs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("log: none is named; - is standard input")
	}
	return nil
}

// parse checks the flags, and sets key and the fields of the Config that no flag sets directly.
func (o *logFlags) parse(cmd *cobra.Command) (err error) {
	switch {
	case len(o.keys) == 0 || o.keys[0] == "":
		return errors.New("--key: is missing: ip, user, path, method, status, or a JSON path")
	case len(o.keys) > 1: // of two, the last would win unnoticed
		return fmt.Errorf("--key: is given %d times; several fields make one key as in --key %s", len(o.keys),
			strings.Join(o.keys, ","))
	case o.Top < 0:
		return fmt.Errorf("--top: %d is negative", o.Top)
	case o.Top == 0:
		o.Top = -1 // no keys; 0 would be the default
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
	return flagError(err)
}

// flagError names the flag in an error about its value.
func flagError(err error) error {
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return fmt.Errorf("--%s: %s", wrong.Field, wrong.Problem)
	}
	return err
}

type replayFlags struct {
	logFlags
	limits []string
	html   string
}

func newReplayCommand() *cobra.Command {
	var options replayFlags
	cmd := &cobra.Command{
		Use:   "replay --limit LIMIT --key FIELD LOG...",
		Short: "Say what a limit would have done to a log",
		Long: `Replay the requests of access logs against a limit, under the clock of the
logs, and say how many would have been admitted and refused, whose, and when.
With several --limit, compare what each of them would have done by itself.

LIMIT is a name from the config file or a one-line notation. ` + aboutLogs + `

With --fill each request takes as much of its cost as fits, and what does not fit
overflows, as fill-up does. In a log of format usage (model calls with tokens) what
was reserved is charged when a call begins, and settled to what was used when it ends.`,
		Example: `  headgate replay --limit 'token-bucket 10/1m burst 5' --key ip access.log
  headgate replay --limit 'sliding-log 5/1m' --limit 'fixed-window 5/1m' --key ip,path --where method=POST access.log
  headgate replay --limit 'token-bucket 1000000/1h' --key user --cost bytes --since 2026-05-01 access.log*
  headgate replay --limit 'leaky-bucket 1.5/s capacity 3' --key job --cost n --fill --html fill.html fills.csv
  zcat auth.log.*.gz | headgate replay --limit 'fixed-window 5/1h' --key user --format sshd -`,
		Args: requireLogs,
		RunE: options.run,
	}
	f := cmd.Flags()
	f.StringArrayVar(&options.limits, "limit", nil,
		"the `limit`: a name from the config file or a one-line notation; several are compared")
	options.addFlags(cmd)
	addSettings(cmd, config.File)
	f.StringVar(&options.html, "html", "", "also write a page with pictures to this `file`")
	f.BoolVar(&options.Fill, "fill", false, "take as much of each cost as fits, and mark what overflows")
	f.IntVar(&options.Trace, "trace", 0, "list `how many` of the first requests with the level before and after each")
	return cmd
}

func (o *replayFlags) run(cmd *cobra.Command, logs []string) error {
	if len(o.limits) == 0 || o.limits[0] == "" {
		return errors.New("--limit: is missing: a name from the config file, or a notation such as " +
			"'token-bucket 10/1m burst 5'")
	}
	if err := o.parse(cmd); err != nil {
		return err
	}
	limits, err := o.resolveLimits(cmd)
	if err != nil {
		return err
	}
	if o.html != "" {
		if err := checkWritable(o.html); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	bar := newProgressBar(cmd.ErrOrStderr())
	o.Pictures, o.Progress = o.html != "", bar.show
	reports, err := replay.Compare(cmd.Context(), limits, o.key, logs, &o.Config)
	bar.clear()
	if err != nil {
		return err
	}
	if o.html != "" {
		var page bytes.Buffer
		if err := replay.WriteAllHTML(&page, reports); err != nil {
			return err
		}
		if err := writeAtomically(o.html, page.Bytes(), 0o644); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	out := cmd.OutOrStdout()
	if o.json {
		return replay.WriteAllJSON(out, reports)
	}
	if err := replay.WriteAllText(out, reports); err != nil {
		return err
	}
	if o.html != "" {
		_, err = fmt.Fprintf(out, "\npage       %s\n", o.html)
	}
	return err
}

// resolveLimits returns the limits of the flags. A limit that is given twice is an error.
func (o *replayFlags) resolveLimits(cmd *cobra.Command) ([]headgate.Limit, error) {
	limits := make([]headgate.Limit, len(o.limits))
	for i, text := range o.limits {
		limit, err := resolveLimit(cmd, text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(limits[:i], func(l headgate.Limit) bool { return l.String() == limit.String() }) {
			return nil, fmt.Errorf("--limit: %s is given twice", limit)
		}
		limits[i] = limit
	}
	return limits, nil
}

// checkWritable checks, before the logs are read, that writeAtomically can create a file in the directory of name.
func checkWritable(name string) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	if info, err := os.Stat(name); err == nil {
		if info.IsDir() {
			return fmt.Errorf("%s is a directory", name)
		}
		if !info.Mode().IsRegular() {
			return nil // a pipe or a device
		}
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".headgate-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeAtomically replaces the text of a file, so that readers see the old text or the new one. It writes directly to a
// pipe or device. A new file gets the mode.
func writeAtomically(path string, text []byte, mode fs.FileMode) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil {
		if mode = info.Mode(); !mode.IsRegular() {
			return os.WriteFile(path, text, mode)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".headgate-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	_ = f.Chmod(mode.Perm())  // the reader may be another user of the group
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

type suggestFlags struct {
	logFlags
	refuse  string
	shareOf string // value of --of
	periods []string
}

func newSuggestCommand() *cobra.Command {
	options := suggestFlags{}
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
  headgate suggest --key ip,path --where method=POST -o json access.log`,
		Args: requireLogs,
		RunE: options.run,
	}
	f := cmd.Flags()
	options.addFlags(cmd)
	f.StringVar(&options.refuse, "refuse", strconv.FormatFloat(100*replay.DefaultRefuse, 'g', -1, 64)+"%",
		"the `share` that may be refused, such as 0.2% or 0.002")
	f.StringVar(&options.shareOf, "of", "requests", "`whose` share it is: requests or keys")
	f.StringSliceVar(&options.periods, "period", []string{"1m", "1h", "1d"}, "the `periods` of the limits")
	return cmd
}

func (o *suggestFlags) run(cmd *cobra.Command, logs []string) error {
	if err := o.parse(cmd); err != nil {
		return err
	}
	criteria, err := replay.ParseSuggestOptions(o.refuse, o.shareOf, o.periods)
	if err != nil {
		return flagError(err)
	}
	bar := newProgressBar(cmd.ErrOrStderr())
	o.Progress = bar.show
	requests, err := replay.Read(cmd.Context(), o.key, logs, &o.Config)
	var suggestion *replay.Suggestion
	if err == nil {
		suggestion, err = requests.Suggest(cmd.Context(), criteria)
	}
	bar.clear()
	switch {
	case err != nil:
		return err
	case bool(o.json):
		return suggestion.WriteJSON(cmd.OutOrStdout())
	}
	return suggestion.WriteText(cmd.OutOrStdout())
}
