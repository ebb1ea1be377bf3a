package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/headgate/headgate/law"
)

// input collects the requests of all logs.
type input struct {
	cfg    *Config
	field  string
	report Report
	events *sorter
	keys   []string          // by number
	number map[string]uint32 // of a key
	done   int64             // bytes read of earlier logs
	total  int64             // bytes of all logs, or -1
}

func newInput(cfg *Config, field string) *input {
	return &input{
		cfg:    cfg,
		field:  field,
		events: newSorter(cfg.Events, cfg.TempDir),
		number: map[string]uint32{},
	}
}

func (in *input) readAll(ctx context.Context, logs []string) error {
	for _, name := range logs {
		info, err := os.Stat(name)
		if name == "-" || err != nil || !info.Mode().IsRegular() {
			in.total = -1
			break
		}
		in.total += info.Size()
	}
	for _, name := range logs {
		if err := in.readLog(ctx, name); err != nil {
			return fmt.Errorf("replay: %s: %w", logName(name), err)
		}
	}
	in.report.Keys = len(in.keys)
	return nil
}

// logName is what a log is called in messages.
func logName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

func (in *input) readLog(ctx context.Context, name string) error {
	var (
		src     = in.cfg.Stdin
		changed = time.Now()
	)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil {
			changed = info.ModTime()
		}
		src = f
	}
	lines, err := newLines(src)
	if err != nil {
		return err
	}
	format := in.cfg.Format
	if format == "" {
		if format, err = detect(lines.peek(), in.field); err != nil {
			if errors.Is(err, ErrEmpty) {
				return nil // an error only if all of them are
			}
			return err
		}
	}
	rd, err := newReader(format, in.field, readerConfig{year: in.cfg.Year, changed: changed, attempts: in.cfg.Attempts})
	if err != nil {
		return err
	}
	in.report.Logs = append(in.report.Logs, Log{Name: logName(name), Format: format})
	if err := in.readLines(ctx, name, lines, rd); err != nil {
		return err
	}
	in.done += lines.bytesRead()
	if n, ok := rd.(interface{ notes() []string }); ok {
		for _, note := range n.notes() {
			in.report.Notes = append(in.report.Notes, logName(name)+": "+note)
		}
	}
	return nil
}

// readLines reads a log to its end.
func (in *input) readLines(ctx context.Context, name string, lines *lines, rd reader) error {
	r := &in.report
	var newest int64 // of this log
	for n := int64(1); ; n++ {
		line, err := lines.next()
		if n&0xfff == 0 || err != nil {
			in.cfg.Progress(Reading, in.done+lines.bytesRead(), in.total)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return fmt.Errorf("line %d: %w", n, err)
		}
		r.Lines++
		if len(line) == 0 && err == nil {
			r.Skipped++
			continue
		}
		var rec record
		if err == nil {
			rec, err = rd.read(line)
		}
		var key uint32
		if err == nil && rec.count > 0 {
			key, err = in.intern(rec.key)
		}
		if err != nil {
			r.Unparsed++
			if r.FirstUnparsed == nil {
				r.FirstUnparsed = &BadLine{Log: logName(name), Line: n, Text: clip(line), Reason: err.Error()}
			}
			continue
		}
		if rec.count == 0 {
			r.Skipped++
			continue
		}
		for range rec.count {
			if rec.at < newest {
				r.Disorder.Requests++
				r.Disorder.Greatest = max(r.Disorder.Greatest, time.Duration(newest-rec.at)*time.Microsecond)
			}
			r.Requests++
			if err := in.events.add(rec.at, key); err != nil {
				return err
			}
		}
		newest = max(newest, rec.at)
	}
}

var errTooManyKeys = errors.New("there are more than 2^32 different keys")

// intern returns the number of a key.
func (in *input) intern(key []byte) (uint32, error) {
	if n, ok := in.number[string(key)]; ok {
		return n, nil
	}
	s := string(key)
	if err := law.ValidKey(s); err != nil {
		return 0, err
	}
	if len(in.keys) >= 1<<32-1 {
		return 0, errTooManyKeys
	}
	n := uint32(len(in.keys))
	in.keys = append(in.keys, s)
	in.number[s] = n
	return n, nil
}

// maxShown is how much of a bad line is kept to be shown.
const maxShown = 300

func clip(line []byte) string {
	if len(line) <= maxShown {
		return string(line)
	}
	return string(bytes.ToValidUTF8(slices.Clone(line[:maxShown]), nil)) + "..."
}
