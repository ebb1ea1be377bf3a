// Package replay computes what a limit would have done to a real log: it reads the log's requests, sorts them by time
// and lets the same Limiter that programs use decide each one, over a memory store whose clock follows the log.
//
// Logs may be out of order. Requests are kept in memory, 16 bytes each or 40 if any has a cost, and so are keys.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
)

// Errors for errors.Is. All of them are errors of the caller.
var (
	ErrEmpty      = accesslog.ErrEmpty
	ErrFormat     = accesslog.ErrFormat
	ErrUnreadable = errors.New("no line could be read")
	ErrNoRequest  = errors.New("there is no request")
	ErrLarge      = accesslog.ErrLarge
)

// DefaultTop is how many of the most refused keys a report names by default.
const DefaultTop = 10

// maxBuckets bounds the buckets over time of a report.
const maxBuckets = 200

// Config says how logs are read. A nil Config, and every zero field, is fine.
type Config struct {
	// Config is for each log; Changed is taken from its file. With an empty Cost each request costs 1, but for Usage.
	accesslog.Config

	Format   accesslog.Format // format of all logs; empty: detected for each from its first lines
	Top      int              // how many of the most refused keys to name; 0: DefaultTop, below 0: none
	Pictures bool             // record the levels that WriteAllHTML draws
	Stdin    io.Reader        // content of the log "-"; nil: os.Stdin
	Name     string           // name of the log "-" in reports; empty: standard input

	Where []string  // conditions, all of which must hold: method=POST, status!=200, path~^/api/, agent!~bot
	Since time.Time // requests from this time on; zero: all
	Until time.Time // requests before this time; zero: all

	Fill  bool // take as much of each cost as fits, and mark what overflows
	Trace int  // how many of the first requests to list, with the level before and after each

	MaxBytes  int64 // bound on each log, unpacked; a longer log is ErrLarge; 0: no bound
	MaxMemory int64 // bound on what requests and keys take, about; more is ErrLarge; above 0: Where has bounds; 0: none

	// Progress, if set, is called now and then with the bytes or requests done in a phase. total is -1 if unknown.
	Progress func(p Phase, done, total int64)
}

// Phase is a part of a replay that a progress bar shows.
type Phase string

// The phases: bytes are read, then requests are decided. Suggest has Evaluating, too.
const (
	Reading  Phase = "reading"
	Deciding Phase = "deciding"
)

// Compare replays the requests of logs against limits, each by itself. It reads the logs once, and returns a report
// for each limit. key names the fields that the limits are applied to, separated by commas, such as ip or user,path; in
// JSON logs the path of any value, in a CSV or IIS log a column. ip replaces an IPv6 address by its network
// of 64 bits, like httplimit.ByIP; ip/48 sets another length. The log "-" is standard input. Packed logs are read.
//
// Lines that cannot be read are counted in the report, and are not errors. It is an error if no line is a request, if
// less than half of a log's lines have the format that was detected for it, if a log is missing or truncated, or if
// ctx is done.
func Compare(ctx context.Context, limits []headgate.Limit, key string, logs []string, cfg *Config) ([]*Report, error) {
	if err := checkLimits(limits); err != nil {
		return nil, err
	}
	reqs, err := Read(ctx, key, logs, cfg)
	if err != nil {
		return nil, err
	}
	return reqs.Compare(ctx, reqs.cfg.Top, limits...)
}

// Read reads the requests of logs into memory. Pictures, Fill, Trace and Progress of cfg apply to later calls, too.
func Read(ctx context.Context, key string, logs []string, cfg *Config) (*Requests, error) {
	config := *cmp.Or(cfg, &Config{})
	config.Top = cmp.Or(config.Top, DefaultTop)
	config.Stdin = cmp.Or[io.Reader](config.Stdin, os.Stdin)
	if config.Progress == nil {
		config.Progress = func(Phase, int64, int64) {}
	}
	reqs, err := newRequests(&config, key)
	if err == nil {
		err = reqs.check(logs)
	}
	if err != nil {
		return nil, err
	}
	return reqs, reqs.readAll(ctx, logs)
}

// checkLimits returns an error if one of the limits cannot be replayed.
func checkLimits(limits []headgate.Limit) error {
	for _, limit := range limits {
		switch {
		case limit.IsZero():
			return headgate.Invalid("limit", "is missing")
		case limit.Concurrency():
			return headgate.Invalid("limit",
				"%s counts what is held at the same time; a log does not say when requests end", limit)
		}
	}
	return nil
}

// check validates the configuration and the logs' names before anything is read, and sums the sizes of the logs.
func (reqs *Requests) check(logs []string) error {
	cfg := reqs.cfg
	switch {
	case len(logs) == 0:
		return headgate.Invalid("log", "none is named; - is standard input")
	case cfg.Year < 0 || cfg.Year > 0 && (cfg.Year < 1971 || cfg.Year > 2100):
		return headgate.Invalid("year", "%d is not from 1971 to 2100", cfg.Year)
	case cfg.Trace < 0:
		return headgate.Invalid("trace", "%d is negative", cfg.Trace)
	case !cfg.Until.IsZero() && !cfg.Until.After(cfg.Since):
		return headgate.Invalid("until", "is not after since")
	}
	if cfg.Format != "" {
		if _, err := reqs.reader(cfg.Format, time.Time{}); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	hasStdin, sizeUnknown := false, false
	for _, name := range logs {
		if name == "-" {
			if hasStdin {
				return headgate.Invalid("log", "standard input is named twice")
			}
			hasStdin, sizeUnknown = true, true
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if info.IsDir() {
			return fmt.Errorf("replay: %s is a directory; name the log files in it", name)
		}
		if reqs.bytesTotal += info.Size(); !info.Mode().IsRegular() {
			sizeUnknown = true
		}
	}
	if sizeUnknown {
		reqs.bytesTotal = -1
	}
	return nil
}

func timeOf(us int64) time.Time { return time.UnixMicro(us).UTC() }

const (
	second = int64(1_000_000)
	day    = 86_400 * second
)

// LogReport returns a report with only what does not depend on a limit, such as lines, keys, times and notes.
func (reqs *Requests) LogReport() Report { return reqs.report }

// Compare replays the requests against limits, each by itself. Each report names up to top of the most refused keys.
func (reqs *Requests) Compare(ctx context.Context, top int, limits ...headgate.Limit) ([]*Report, error) {
	if err := checkLimits(limits); err != nil {
		return nil, err
	}
	reports := make([]*Report, len(limits))
	for i, limit := range limits {
		var err error
		if reports[i], err = decide(ctx, limit, reqs, top); err == nil && reqs.cfg.Pictures {
			err = reports[i].trace(ctx, reqs, len(limits))
		}
		if err != nil {
			return nil, err
		}
	}
	return reports, nil
}

// The approximate memory of the slices and the map, with half as much again of spare capacity, in bytes: of each key
// beside its text, of each event (16 bytes), and of its amounts (24 bytes).
const (
	keyMemory   = 100
	eventMemory = 24
	costMemory  = 36
)

// Memory estimates the bytes of the requests and their keys.
func (reqs *Requests) Memory() int64 {
	return reqs.keyBytes + keyMemory*int64(len(reqs.keys)) + eventMemory*int64(len(reqs.events.list)) +
		costMemory*int64(len(reqs.events.costs))
}
