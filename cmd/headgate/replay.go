package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/server/config"
)

// replayOptions are the flags of `headgate replay`.
type replayOptions struct {
	logOptions
	limits []string
	html   string
	json   bool
}

// newReplayCommand returns `headgate replay`.
func newReplayCommand() *cobra.Command {
	var o replayOptions
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
		Args: logNames,
		RunE: o.run,
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.limits, "limit", nil,
		"the `limit`: a name from the config file or a one-line notation; several are compared")
	o.flags(cmd)
	addSettings(cmd, config.File)
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	f.StringVar(&o.html, "html", "", "also write a page with pictures to this `file`")
	f.BoolVar(&o.Fill, "fill", false, "take as much of each cost as fits, and mark what overflows")
	f.IntVar(&o.Trace, "trace", 0, "list `how many` of the first requests with the level before and after each")
	return cmd
}

func (o *replayOptions) run(cmd *cobra.Command, logs []string) error {
	if len(o.limits) == 0 || o.limits[0] == "" {
		return errors.New("--limit: is missing: a name from the config file, or a notation such as " +
			"'token-bucket 10/1m burst 5'")
	}
	if err := o.complete(cmd); err != nil {
		return err
	}
	limits, err := o.resolve(cmd)
	if err != nil {
		return err
	}
	if o.html != "" {
		if err := writableBeside(o.html); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	bar := newBar(cmd.ErrOrStderr())
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
		if err := writeWhole(o.html, page.Bytes(), 0o644); err != nil {
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

// resolve returns the limits, each once.
func (o *replayOptions) resolve(cmd *cobra.Command) ([]headgate.Limit, error) {
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

// writeWhole writes a file, or into a pipe or a device. Readers of the file see the old text or the new one. mode is
// that of a new file.
func writeWhole(path string, text []byte, mode fs.FileMode) error {
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
