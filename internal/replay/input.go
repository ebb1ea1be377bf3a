package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/law"
)

// Requests are the requests of logs that were read once, to be replayed against any number of limits. They are safe
// for concurrent use.
type Requests struct {
	cfg        *Config
	key        []keyPart
	conditions []condition
	fields     []string // fields read from each line: of the key, of the conditions, then the cost
	report     Report
	events     events
	keys       []string // a key's number is its index
	keyNumbers map[string]uint32
	formatted  int64 // lines that have their log's format
	bytesDone  int64 // bytes read of earlier logs
	bytesTotal int64 // bytes of all logs, or -1 if unknown
	free       int64 // requests that cost nothing
	keyBytes   int64
}

func newRequests(cfg *Config, key string) (*Requests, error) {
	in := &Requests{cfg: cfg, keyNumbers: map[string]uint32{}}
	var err error
	if in.key, err = parseKey(key); err != nil {
		return nil, err
	}
	for _, p := range in.key {
		in.fields = append(in.fields, p.field)
	}
	if cfg.MaxMemory > 0 && len(cfg.Where) > maxConditions {
		return nil, law.Invalid("where", "is there %d times; %d are allowed here", len(cfg.Where), maxConditions)
	}
	for _, spec := range cfg.Where {
		w, err := parseCondition(spec)
		if err == nil && cfg.MaxMemory > 0 { // a server evaluates it for a client
			err = w.bound(spec)
		}
		if err != nil {
			return nil, err
		}
		in.conditions = append(in.conditions, w)
		in.fields = append(in.fields, w.field)
	}
	if cfg.Cost != "" {
		in.fields = append(in.fields, cfg.Cost)
	}
	in.report.Field = key
	return in, nil
}

// reader returns a reader for a log that was last changed at a time, or why its format lacks what the limits need.
func (in *Requests) reader(f accesslog.Format, changed time.Time) (accesslog.Reader, error) {
	fields := in.fields
	if f == accesslog.Usage && in.cfg.Cost != "" { // the reader itself reads the cost
		fields = fields[:len(fields)-1]
	}
	if f != accesslog.Usage && in.cfg.Settle != "" {
		return nil, law.Invalid("settle", "a log of the format %s does not say when a request ended; only %s does", f,
			accesslog.Usage)
	}
	return accesslog.New(f, fields, in.logConfig(changed))
}

// logConfig returns the configuration for a log that was last changed at a time.
func (in *Requests) logConfig(changed time.Time) accesslog.Config {
	c := in.cfg.Config
	c.Changed = changed
	return c
}

// readAll reads the logs, sorts their requests and fails if there are none.
func (in *Requests) readAll(ctx context.Context, logs []string) error {
	for _, name := range logs {
		if err := in.readLog(ctx, name); err != nil {
			return fmt.Errorf("replay: %s: %w", in.logName(name), err)
		}
	}
	r := &in.report
	r.Keys = int64(len(in.keys))
	if in.free > 0 {
		r.Notes = append(r.Notes, plural(in.free, "request")+" cost nothing, and always pass")
	}
	switch {
	case r.Lines == 0:
		return fmt.Errorf("replay: %w", ErrEmpty)
	case r.Requests == 0 && r.Unparsed > 0:
		return fmt.Errorf("replay: %w of %s; the first: %s", ErrUnreadable, plural(r.Unparsed, "line"), r.FirstUnparsed)
	case in.formatted == 0:
		return fmt.Errorf("replay: %w: none of %s is of the format %s", ErrUnreadable, plural(r.Lines, "line"),
			in.cfg.Format)
	case r.Requests == 0:
		return fmt.Errorf("replay: %w in %s: %s", ErrNothing, plural(r.Lines, "line"), r.explainNothing())
	}
	in.events.sort()
	list := in.events.list
	r.First, r.Last = timeOf(list[0].at), timeOf(list[len(list)-1].at)
	return nil
}

// logName returns what a log is called in messages.
func (in *Requests) logName(name string) string {
	if name == "-" {
		return cmp.Or(in.cfg.Name, "standard input")
	}
	return name
}

// readLog opens a log, detects its format if none is configured, and reads its lines.
func (in *Requests) readLog(ctx context.Context, name string) error {
	src, changed := in.cfg.Stdin, time.Now()
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
	lines, err := accesslog.NewLines(src, in.cfg.MaxBytes)
	if err != nil {
		return err
	}
	format := in.cfg.Format
	if format == "" {
		if format, err = accesslog.Detect(lines.Peek(), in.logConfig(changed)); err != nil {
			if errors.Is(err, ErrEmpty) {
				return nil // an error only if all of them are
			}
			return err
		}
	}
	rd, err := in.reader(format, changed)
	if err != nil {
		return err
	}
	in.report.Logs = append(in.report.Logs, Log{Name: in.logName(name), Format: format})
	counts, err := in.readLines(ctx, name, lines, rd)
	if err != nil {
		return err
	}
	if in.cfg.Format == "" && !counts.Recognised() {
		return fmt.Errorf("%w: it begins as %s, but of %s only %s could be read so; to read it all the same, name "+
			"the format; the first of the others: %s",
			ErrFormat, format, plural(counts.Good+counts.Bad, "line"), comma(counts.Good), counts.firstBad)
	}
	in.formatted += counts.Good
	in.bytesDone += lines.BytesRead()
	for _, note := range rd.Notes() {
		in.report.Notes = append(in.report.Notes, in.logName(name)+": "+note)
	}
	return nil
}

// lineCounts counts a log's lines by whether they have its format, and keeps the first line that has not.
type lineCounts struct {
	accesslog.LineCounts
	firstBad *BadLine
}

// next reads line number n. The error is io.EOF at the end of the log, and accesslog.ErrLong with the beginning of a
// line that is too long.
func (in *Requests) next(ctx context.Context, lines *accesslog.Lines, n int64) ([]byte, error) {
	line, err := lines.Next()
	if n&0xfff == 0 || err != nil {
		in.cfg.Progress(Reading, in.bytesDone+lines.BytesRead(), in.bytesTotal)
	}
	if ctx.Err() != nil { // at each line: conditions may take long on a line of a megabyte
		return nil, ctx.Err()
	}
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, accesslog.ErrLong) {
			return line, err
		}
		return nil, fmt.Errorf("line %d: %w", n, err)
	}
	if bound := in.cfg.MaxMemory; bound > 0 && in.Memory() > bound {
		return nil, fmt.Errorf("%w: before line %d its requests and keys take more than %d bytes", ErrLarge, n, bound)
	}
	return line, nil
}

// readLines reads a log to its end, and counts the lines that have its format.
func (in *Requests) readLines(ctx context.Context, name string, lines *accesslog.Lines, rd accesslog.Reader) (
	counts lineCounts, err error,
) {
	r := &in.report
	var newest int64 // the latest time in this log so far
	for n := int64(1); ; n++ {
		line, err := in.next(ctx, lines, n)
		if errors.Is(err, io.EOF) {
			return counts, nil
		}
		if err != nil && !errors.Is(err, accesslog.ErrLong) {
			return counts, err
		}
		r.Lines++
		bad := BadLine{Log: in.logName(name), Line: n}
		if len(line) == 0 && err == nil {
			r.addSkipped(&bad, line, "is blank")
			continue
		}
		var rec accesslog.Record
		if err == nil {
			rec, err = rd.Read(line)
			if errors.Is(err, law.ErrInvalid) { // the log lacks a field
				return counts, fmt.Errorf("line %d: %w", n, err)
			}
			counts.Add(&rec, err)
		}
		if err == nil && rec.Count == 0 {
			r.addSkipped(&bad, line, rec.Skip)
			continue
		}
		if err == nil {
			var passes bool
			if passes, err = in.add(&rec, &newest); err == nil && !passes {
				r.Filtered++
			}
		}
		if err != nil {
			r.addUnparsed(&bad, line, err)
			if counts.firstBad == nil && counts.Bad > 0 {
				counts.firstBad = &bad
			}
		}
	}
}

// add adds the requests of a line if Since, Until and the conditions let it pass. newest is the latest time so far.
func (in *Requests) add(rec *accesslog.Record, newest *int64) (passes bool, err error) {
	when := timeOf(rec.At)
	if when.Before(in.cfg.Since) || !in.cfg.Until.IsZero() && !when.Before(in.cfg.Until) {
		return false, nil
	}
	for i := range in.conditions {
		if passes, err := in.conditions[i].holds(rec.Values[len(in.key)+i]); err != nil || !passes {
			return false, err
		}
	}
	r := request{at: rec.At, amounts: amounts{cost: million}}
	if err := in.price(rec, &r); err != nil {
		return false, err
	}
	key, err := keyOf(in.key, rec.Values)
	if err != nil {
		return false, err
	}
	if r.key, err = in.intern(key); err != nil {
		return false, err
	}
	if len(in.events.list)+rec.Count > math.MaxUint32 {
		return false, errTooMany
	}
	d := &in.report.Disorder
	for range rec.Count {
		if r.at < *newest {
			d.Requests++
			d.Greatest.Duration = max(d.Greatest.Duration, time.Duration(*newest-r.at)*time.Microsecond)
		}
		if r.cost == 0 {
			in.free++
		}
		in.report.Requests++
		in.events.add(r)
	}
	*newest = max(*newest, r.at)
	return true, nil
}

// price sets the cost of a request from its line.
func (in *Requests) price(rec *accesslog.Record, r *request) (err error) {
	switch {
	case rec.Spent.Used != nil:
		if r.cost, err = parseCost(rec.Spent.Reserved); err == nil {
			r.used, err = parseCost(rec.Spent.Used)
		}
		if r.end = max(rec.Spent.End, r.at); in.cfg.Fill {
			r.cost, r.used, r.end = r.used, 0, 0
		}
	case in.cfg.Cost != "":
		v := rec.Values[len(in.fields)-1]
		if err = v.Err; err == nil {
			r.cost, err = parseCost(v.Text)
		}
	}
	return err
}

var (
	errTooMany     = errors.New("there are more than 2^32 requests")
	errTooManyKeys = errors.New("there are more than 2^32 different keys")
)

// intern returns the number of a key, and numbers it if it is new.
func (in *Requests) intern(key []byte) (uint32, error) {
	if n, ok := in.keyNumbers[string(key)]; ok {
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
	in.keyBytes += int64(len(s))
	in.keys = append(in.keys, s)
	in.keyNumbers[s] = n
	return n, nil
}
