// Package replay answers what a limit would have done to a real log: it reads
// the log's requests, puts them in the order of their times and asks the very
// same Limiter about each, over a memory store whose clock is the log's.
//
// Logs may be of any size and out of order; requests that do not fit in memory
// are sorted in a temporary file. What is kept for each key stays in memory.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate/headgate"
)

// Errors, for errors.Is. All are the caller's fault.
var (
	ErrEmpty      = errors.New("the log is empty")
	ErrFormat     = errors.New("format not recognised")
	ErrUnreadable = errors.New("no line could be read")
)

// DefaultTop is how many of the most refused keys a report names,
// DefaultEvents how many requests are sorted in memory (16 bytes each).
const (
	DefaultTop    = 10
	DefaultEvents = 4 << 20
)

// maxBuckets bounds the buckets over time of a report.
const maxBuckets = 200

// Config adjusts a Run. A nil Config, and every zero field, is fine.
type Config struct {
	Format   Format    // of all logs; empty: found out for each from its first lines
	Top      int       // how many of the most refused keys to name; 0: DefaultTop, below 0: none
	Year     int       // of the first line of a log that writes none (syslog); 0: the year the file was last changed in
	Attempts bool      // sshd: count attempts, not lines: see SSHD
	Pictures bool      // record the levels that WriteHTML draws
	Events   int       // requests sorted in memory; 0: DefaultEvents
	TempDir  string    // where those that do not fit are sorted; empty: the system's
	Stdin    io.Reader // what the log "-" is; nil: os.Stdin

	// Progress, if set, is told now and then how far a phase has come. total
	// is -1 where nobody knows.
	Progress func(p Phase, done, total int64)
}

// Phase is a part of the work, for a progress bar.
type Phase string

// The phases: bytes are read, then requests are decided.
const (
	Reading  Phase = "reading"
	Deciding Phase = "deciding"
)

// Run replays the requests of logs against a limit. key names the field that
// the limit is applied to: ip, user, path, method or status, or in JSON logs
// the path of any value. The log "-" is standard input; gzip is recognised.
//
// Lines that cannot be read are counted in the report, not errors. It is an
// error if no line can be read, or if less than half of the lines of a log are of
// the format that was found out for it; if a log is missing or breaks off, or if ctx
// is done.
func Run(ctx context.Context, limit headgate.Limit, key string, logs []string, cfg *Config) (*Report, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Top == 0 {
		c.Top = DefaultTop
	}
	if c.Events <= 0 {
		c.Events = DefaultEvents
	}
	if c.Stdin == nil {
		c.Stdin = os.Stdin
	}
	if c.Progress == nil {
		c.Progress = func(Phase, int64, int64) {}
	}
	if err := checkArguments(limit, key, logs, &c); err != nil {
		return nil, err
	}

	in := newInput(&c, key)
	defer in.events.close()
	if err := in.readAll(ctx, logs); err != nil {
		return nil, err
	}
	r := &in.report
	r.Limit, r.Notation, r.Bound, r.Field = limit.Name(), limit.String(), limit.Bound().String(), key
	if r.Lines == 0 {
		return nil, fmt.Errorf("replay: %w", ErrEmpty)
	}
	if r.Requests == 0 && r.Unparsed > 0 {
		return nil, fmt.Errorf("replay: %w of %s; the first: %s", ErrUnreadable, plural(r.Unparsed, "line"),
			r.FirstUnparsed)
	}
	if in.good == 0 {
		return nil, fmt.Errorf("replay: %w: none of %s is of the format %s", ErrUnreadable,
			plural(r.Lines, "line"), c.Format)
	}
	if err := in.events.finish(); err != nil {
		return nil, err
	}
	if err := decide(ctx, limit, in, &c); err != nil {
		return nil, err
	}
	if c.Pictures {
		if err := trace(ctx, limit, in); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func checkArguments(limit headgate.Limit, key string, logs []string, c *Config) error {
	switch {
	case limit.IsZero():
		return headgate.Invalid("limit", "is missing")
	case limit.Concurrency():
		return headgate.Invalid("limit",
			"%s counts what is held at the same time; a log does not say when requests end", limit)
	case key == "":
		return headgate.Invalid("key", "is missing; say ip, user, path, method, status or a JSON path")
	case len(logs) == 0:
		return headgate.Invalid("log", "none is named; - is standard input")
	case c.Year < 0 || c.Year > 0 && (c.Year < 1971 || c.Year > 2100):
		return headgate.Invalid("year", "%d is not from 1971 to 2100", c.Year)
	}
	if c.Format != "" {
		if _, err := newReader(c.Format, key, readerConfig{}); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	stdin := false
	for _, name := range logs {
		if name == "-" {
			if stdin {
				return headgate.Invalid("log", "standard input is named twice")
			}
			stdin = true
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if info.IsDir() {
			return fmt.Errorf("replay: %s is a directory; name the log files in it", name)
		}
	}
	return nil
}

// at returns microseconds as a time.
func at(us int64) time.Time { return time.UnixMicro(us).UTC() }
