package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/server/config"
)

// replayOptions are the flags of `headgate replay`.
type replayOptions struct {
	limits   []string // one: more are refused until they can be compared
	keys     []string // one
	format   string
	html     string
	json     bool
	top      int
	year     int
	attempts bool
}

// newReplayCommand returns `headgate replay`.
func newReplayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay --limit LIMIT --key FIELD LOG...",
		Short: "Say what a limit would have done to a log",
		Long: `Replay the requests of access logs against a limit, under the clock of the
logs, and say how many would have been admitted and refused, whose, and when.

LIMIT is a name from the config file or a one-line notation. FIELD is ip, user,
path (without query and fragment), method or status, or in JSON logs the path of
a value such as request.headers.Host.0. LOG is a file, which may be packed with
gzip, or - for standard input. Logs need not be in order.

Without --format the format is found out from the first lines of each log; a log
that is less than half of that format is refused. In an sshd log, every line about
a failed password or an invalid user counts. What a client sent in place of a
request has the method - and is its own path.`,
		Example: `  headgate replay --limit 'token-bucket 10/1m burst 5' --key ip access.log
  headgate replay --limit 'sliding-log 5/1m' --key ip --html replay.html access.log*
  zcat auth.log.*.gz | headgate replay --limit 'fixed-window 5/1h' --key user --format sshd -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("log: none is named; - is standard input")
			}
			return nil
		},
		RunE: o.run,
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.limits, "limit", nil, "the `limit`: a name from the config file or a one-line notation")
	f.StringArrayVar(&o.keys, "key", nil, "the `field` to limit by: ip, user, path, method, status, or a JSON path")
	f.StringVar(&o.format, "format", "",
		"the `format` of the logs: combined, common, vhost_combined, json or sshd (default: found out)")
	addSettings(cmd, config.File)
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	f.StringVar(&o.html, "html", "", "also write a page with pictures to this `file`")
	f.IntVar(&o.top, "top", replay.DefaultTop, "`how many` of the keys refused most to name")
	f.IntVar(&o.year, "year", 0, "the `year` of the first line of a log that writes none (default: by the file's date)")
	f.BoolVar(&o.attempts, "attempts", false,
		"sshd: count attempts, not lines: a pair of lines once, a repeated message as often as it says")
	return cmd
}

func (o *replayOptions) run(cmd *cobra.Command, logs []string) error {
	notation, err := single("limit", o.limits,
		"a name from the config file, or a notation such as 'token-bucket 10/1m burst 5'")
	if err != nil {
		return err
	}
	key, err := single("key", o.keys, "ip, user, path, method, status, or a JSON path")
	if err != nil {
		return err
	}
	if o.top < 0 {
		return fmt.Errorf("--top: %d is negative", o.top)
	}
	limit, err := resolveLimit(cmd, notation)
	if err != nil {
		return err
	}
	if o.html != "" {
		if err := writableBeside(o.html); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	top := o.top
	if top == 0 {
		top = -1 // none, as asked
	}
	bar := newReplayBar(cmd.ErrOrStderr())
	report, err := replay.Run(cmd.Context(), limit, key, logs, &replay.Config{
		Format:   replay.Format(strings.ToLower(o.format)),
		Top:      top,
		Year:     o.year,
		Attempts: o.attempts,
		Pictures: o.html != "",
		Stdin:    cmd.InOrStdin(),
		Progress: bar.show,
	})
	bar.clear()
	if err != nil {
		return err
	}
	if o.html != "" {
		var page bytes.Buffer
		if err := report.WriteHTML(&page); err != nil {
			return err
		}
		if err := writeWhole(o.html, page.Bytes()); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	out := cmd.OutOrStdout()
	if o.json {
		return report.WriteJSON(out)
	}
	if err := report.WriteText(out); err != nil {
		return err
	}
	if o.html != "" {
		_, err = fmt.Fprintf(out, "\npage       %s\n", o.html)
	}
	return err
}

// single returns the value of a flag that has to be given once. Of two, the last
// would win unnoticed.
func single(flag string, values []string, like string) (string, error) {
	switch {
	case len(values) == 0 || values[0] == "":
		return "", fmt.Errorf("--%s: is missing: %s", flag, like)
	case len(values) > 1:
		return "", fmt.Errorf("--%s: is given %d times; replay takes one: run it once for each, and compare", flag,
			len(values))
	}
	return values[0], nil
}

// writableBeside finds out before the work whether the page can be written.
func writableBeside(name string) error {
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

// writeWhole writes a file at once: nobody finds half of it.
func writeWhole(name string, data []byte) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(name, data, 0o644)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".headgate-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// newReplayBar shows the progress of a replay.
func newReplayBar(w io.Writer) *bar[replay.Phase] {
	return newBar(w, func(phase replay.Phase) bool { return phase == replay.Reading })
}
