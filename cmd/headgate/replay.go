package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/replay"
)

func newReplayCommand() *cobra.Command {
	var limit, key, format, page, config string
	var asJSON bool
	cfg := replay.Config{}
	cmd := &cobra.Command{
		Use:   "replay --limit LIMIT --key FIELD LOG...",
		Short: "Tell what a limit would have done to a log",
		Long: "Tell what a limit would have done to a log: how many requests it would have\n" +
			"admitted, whom it would have refused, and when. The very same limiter runs under\n" +
			"the log's own clock. LOG is a file, gzipped or not; - is standard input.\n\n" +
			"FIELD is ip, user, path, method, status, or in JSON logs the path of any value\n" +
			"such as request.host.",
		Example: "  headgate replay --limit 'token-bucket 10/1m burst 5' --key ip access.log\n" +
			"  headgate replay --limit 'sliding-log 5/1h' --key ip --format sshd --html page.html auth.log",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := resolveLimit(config, limit)
			if err != nil {
				return err
			}
			if cfg.Format, err = logFormat(format); err != nil {
				return err
			}
			cfg.Pictures, cfg.Stdin = page != "", cmd.InOrStdin()
			done := showProgress(cmd.ErrOrStderr(), &cfg)
			report, err := replay.Run(cmd.Context(), l, key, args, &cfg)
			done()
			if err != nil {
				return err
			}
			if page != "" {
				if err := writePage(page, report); err != nil {
					return err
				}
			}
			if asJSON {
				return report.WriteJSON(cmd.OutOrStdout())
			}
			return report.WriteText(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&limit, "limit", "", "the limit: a name from the config file, or one line")
	f.StringVar(&key, "key", "", "what the limit is applied to: ip, user, path, method, status, or a JSON path")
	f.StringVar(&format, "format", "", "combined, common, json or sshd; found out if not said")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&page, "html", "", "write a page with pictures to this file")
	f.StringVar(&config, "config", "", "config file (HEADGATE_CONFIG)")
	f.IntVar(&cfg.Top, "top", replay.DefaultTop, "how many of the most refused keys to name")
	f.IntVar(&cfg.Year, "year", 0, "year of the first line of a log that writes none (default: the file's)")
	f.BoolVar(&cfg.Attempts, "attempts", false, "sshd: count attempts rather than lines")
	_ = cmd.MarkFlagRequired("limit")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

// logFormat returns the format of a name; empty stays empty.
func logFormat(name string) (replay.Format, error) {
	known := make([]string, len(replay.Formats))
	for i, f := range replay.Formats {
		if known[i] = string(f); known[i] == name || name == "" {
			return replay.Format(name), nil
		}
	}
	return "", fmt.Errorf("%w: format: %q is not known; known are %s", headgate.ErrInvalid, name, strings.Join(known, ", "))
}

// writePage writes the report's page; a file that is only half written is not
// left behind.
func writePage(path string, report *replay.Report) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("html: %w", err)
	}
	err = report.WriteHTML(f)
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("html: %s: %w", path, err)
	}
	return nil
}

// showProgress draws a bar, if w is a terminal, until done is called.
func showProgress(w io.Writer, cfg *replay.Config) (done func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	var bar *progressbar.ProgressBar
	var phase replay.Phase
	cfg.Progress = func(p replay.Phase, n, total int64) {
		if p != phase {
			if bar != nil {
				_ = bar.Clear()
			}
			phase = p
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(string(p)),
				progressbar.OptionShowBytes(p == replay.Reading), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
		}
		_ = bar.Set64(n)
	}
	return func() {
		if bar != nil {
			_ = bar.Clear()
		}
	}
}
