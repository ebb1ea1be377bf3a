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
	good   int64             // lines that were of their log's format
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
		if format, err = detect(lines.peek()); err != nil {
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
	of, err := in.readLines(ctx, name, lines, rd)
	if err != nil {
		return err
	}
	if in.cfg.Format == "" && !of.recognised() {
		return fmt.Errorf("%w: it begins as %s, but of %s only %s could be read so; to read it all the same, name "+
			"the format; the first of the others: %s",
			ErrFormat, format, plural(of.good+of.bad, "line"), comma(of.good), of.first)
	}
	in.good += of.good
	in.done += lines.bytesRead()
	if n, ok := rd.(interface{ notes() []string }); ok {
		for _, note := range n.notes() {
			in.report.Notes = append(in.report.Notes, logName(name)+": "+note)
		}
	}
	return nil
}

// readLines reads a log to its end, and says how many lines were of its format.
func (in *input) readLines(ctx context.Context, name string, lines *lines, rd reader) (of share, err error) {
	r := &in.report
	var newest int64 // of this log
	for n := int64(1); ; n++ {
		line, err := lines.next()
		if n&0xfff == 0 || err != nil {
			in.cfg.Progress(Reading, in.done+lines.bytesRead(), in.total)
			if ctx.Err() != nil {
				return of, ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			return of, nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return of, fmt.Errorf("line %d: %w", n, err)
		}
		r.Lines++
		if len(line) == 0 && err == nil {
			r.Skipped++
			continue
		}
		var rec record
		if err == nil {
			rec, err = rd.read(line)
			of.add(rec, err)
		}
		var key uint32
		if err == nil && rec.count > 0 {
			key, err = in.intern(rec.key)
		}
		if err != nil {
			r.Unparsed++
			bad := &BadLine{Log: logName(name), Line: n, Text: clip(line), Reason: err.Error()}
			if r.FirstUnparsed == nil {
				r.FirstUnparsed = bad
			}
			if of.first == nil && of.bad > 0 {
				of.first = bad
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
				return of, err
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
