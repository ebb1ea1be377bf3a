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

// Requests are the requests of logs, to be replayed against any number of limits. They are safe for concurrent use.
type Requests struct {
	cfg            *Config
	keyParts       []keyPart
	conditions     []condition
	fields         []string // fields to read from each line: those of the key and of the conditions, and the cost
	report         Report   // what does not depend on a limit: see LogReport
	events         events
	keys           []string // by the number of the key
	keyNumbers     map[string]uint32
	formattedLines int64 // lines that have the format of their log
	bytesDone      int64 // bytes read from earlier logs
	bytesTotal     int64 // bytes of all logs, or -1 if unknown
	freeRequests   int64 // requests that cost nothing
	keyBytes       int64 // length of all keys together
}

func newRequests(cfg *Config, key string) (*Requests, error) {
	reqs := &Requests{cfg: cfg, keyNumbers: map[string]uint32{}}
	var err error
	if reqs.keyParts, err = parseKey(key); err != nil {
		return nil, err
	}
	for _, part := range reqs.keyParts {
		reqs.fields = append(reqs.fields, part.field)
	}
	if cfg.MaxMemory > 0 && len(cfg.Where) > maxConditions {
		return nil, law.Invalid("where", "is there %d times; %d are allowed here", len(cfg.Where), maxConditions)
	}
	for _, spec := range cfg.Where {
		c, err := parseCondition(spec)
		if err == nil && cfg.MaxMemory > 0 { // a server evaluates it for a client
			err = c.applyBounds(spec)
		}
		if err != nil {
			return nil, err
		}
		reqs.conditions = append(reqs.conditions, c)
		reqs.fields = append(reqs.fields, c.field)
	}
	if cfg.Cost != "" {
		reqs.fields = append(reqs.fields, cfg.Cost)
	}
	reqs.report.Field = key
	return reqs, nil
}

// reader returns a reader for a log that was last changed at a time. An error says what its format lacks.
func (reqs *Requests) reader(f accesslog.Format, changedAt time.Time) (accesslog.Reader, error) {
	fields := reqs.fields
	if f == accesslog.Usage && reqs.cfg.Cost != "" { // the reader itself reads the cost
		fields = fields[:len(fields)-1]
	}
	if f != accesslog.Usage && reqs.cfg.Settle != "" {
		return nil, law.Invalid("settle", "a log of the format %s does not say when a request ended; only %s does", f,
			accesslog.Usage)
	}
	return accesslog.New(f, fields, reqs.logConfig(changedAt))
}

// logConfig returns the configuration for a log that was last changed at a time.
func (reqs *Requests) logConfig(changedAt time.Time) accesslog.Config {
	c := reqs.cfg.Config
	c.Changed = changedAt
	return c
}

// readAll reads the logs and sorts their requests. It is an error if there are none.
func (reqs *Requests) readAll(ctx context.Context, logs []string) error {
	for _, name := range logs {
		if err := reqs.readLog(ctx, name); err != nil {
			return fmt.Errorf("replay: %s: %w", reqs.logName(name), err)
		}
	}
	r := &reqs.report
	r.Keys = int64(len(reqs.keys))
	if reqs.freeRequests > 0 {
		r.Notes = append(r.Notes, plural(reqs.freeRequests, "request")+" cost nothing, and always pass")
	}
	switch {
	case r.Lines == 0:
		return fmt.Errorf("replay: %w", ErrEmpty)
	case r.Requests == 0 && r.Unparsed > 0:
		return fmt.Errorf("replay: %w of %s; the first: %s", ErrUnreadable, plural(r.Unparsed, "line"), r.FirstUnparsed)
	case reqs.formattedLines == 0:
		return fmt.Errorf("replay: %w: none of %s is of the format %s", ErrUnreadable, plural(r.Lines, "line"),
			reqs.cfg.Format)
	case r.Requests == 0:
		return fmt.Errorf("replay: %w in %s: %s", ErrNoRequest, plural(r.Lines, "line"), r.explainNothing())
	}
	reqs.events.sort()
	list := reqs.events.list
	r.First, r.Last = timeOf(list[0].at), timeOf(list[len(list)-1].at)
	return nil
}

func (reqs *Requests) logName(name string) string {
	if name == "-" {
		return cmp.Or(reqs.cfg.Name, "standard input")
	}
	return name
}

// readLog opens a log, detects its format if none is configured, and reads its lines.
func (reqs *Requests) readLog(ctx context.Context, name string) error {
	src, changedAt := reqs.cfg.Stdin, time.Now()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil {
			changedAt = info.ModTime()
		}
		src = f
	}
	lines, err := accesslog.NewLines(src, reqs.cfg.MaxBytes)
	if err != nil {
		return err
	}
	format := reqs.cfg.Format
	if format == "" {
		if format, err = accesslog.Detect(lines.Peek(), reqs.logConfig(changedAt)); err != nil {
			if errors.Is(err, ErrEmpty) {
				return nil // readAll returns an error if all logs are empty
			}
			return err
		}
	}
	rd, err := reqs.reader(format, changedAt)
	if err != nil {
		return err
	}
	reqs.report.Logs = append(reqs.report.Logs, Log{Name: reqs.logName(name), Format: format})
	counts, err := reqs.readLines(ctx, name, lines, rd)
	if err != nil {
		return err
	}
	if reqs.cfg.Format == "" && !counts.Recognised() {
		return fmt.Errorf("%w: it begins as %s, but of %s only %s could be read so; to read it all the same, name "+
			"the format; the first of the others: %s",
			ErrFormat, format, plural(counts.Good+counts.Bad, "line"), comma(counts.Good), counts.firstBad)
	}
	reqs.formattedLines += counts.Good
	reqs.bytesDone += lines.BytesRead()
	for _, note := range rd.Notes() {
		reqs.report.Notes = append(reqs.report.Notes, reqs.logName(name)+": "+note)
	}
	return nil
}

// lineCounts counts the good and bad lines of a log, and keeps the first bad line.
type lineCounts struct {
	accesslog.LineCounts
	firstBad *BadLine
}

// nextLine reads line number n. The error is io.EOF at the end, accesslog.ErrLong with the beginning of a long line.
func (reqs *Requests) nextLine(ctx context.Context, lines *accesslog.Lines, n int64) ([]byte, error) {
	line, err := lines.Next()
	if n&0xfff == 0 || err != nil {
		reqs.cfg.Progress(Reading, reqs.bytesDone+lines.BytesRead(), reqs.bytesTotal)
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
	if bound := reqs.cfg.MaxMemory; bound > 0 && reqs.Memory() > bound {
		return nil, fmt.Errorf("%w: before line %d its requests and keys take more than %d bytes", ErrLarge, n, bound)
	}
	return line, nil
}

// readLines adds the requests of a log up to its end, and counts its good and bad lines.
func (reqs *Requests) readLines(ctx context.Context, name string, lines *accesslog.Lines, rd accesslog.Reader) (
	counts lineCounts, err error,
) {
	r := &reqs.report
	var newestAt int64 // the latest time in this log so far
	for number := int64(1); ; number++ {
		line, err := reqs.nextLine(ctx, lines, number)
		if errors.Is(err, io.EOF) {
			return counts, nil
		}
		if err != nil && !errors.Is(err, accesslog.ErrLong) {
			return counts, err
		}
		r.Lines++
		badLine := BadLine{Log: reqs.logName(name), Line: number}
		if len(line) == 0 && err == nil {
			r.addSkipped(&badLine, line, "is blank")
			continue
		}
		var rec accesslog.Record
		if err == nil {
			rec, err = rd.Read(line)
			if errors.Is(err, law.ErrInvalid) { // the log lacks a field
				return counts, fmt.Errorf("line %d: %w", number, err)
			}
			counts.Add(&rec, err)
		}
		if err == nil && rec.Count == 0 {
			r.addSkipped(&badLine, line, rec.Skip)
			continue
		}
		if err == nil {
			var matches bool
			if matches, err = reqs.add(&rec, &newestAt); err == nil && !matches {
				r.Filtered++
			}
		}
		if err != nil {
			r.addUnparsed(&badLine, line, err)
			if counts.firstBad == nil && counts.Bad > 0 {
				counts.firstBad = &badLine
			}
		}
	}
}

// add adds the requests of a line that Since, Until and the conditions let pass. It updates the log's latest time.
func (reqs *Requests) add(rec *accesslog.Record, newestAt *int64) (matches bool, err error) {
	at := timeOf(rec.At)
	if at.Before(reqs.cfg.Since) || !reqs.cfg.Until.IsZero() && !at.Before(reqs.cfg.Until) {
		return false, nil
	}
	for i := range reqs.conditions {
		if matches, err := reqs.conditions[i].holds(rec.Values[len(reqs.keyParts)+i]); err != nil || !matches {
			return false, err
		}
	}
	r := request{at: rec.At, amounts: costsOne}
	if err := reqs.setCost(rec, &r); err != nil {
		return false, err
	}
	key, err := makeKey(reqs.keyParts, rec.Values)
	if err != nil {
		return false, err
	}
	if r.key, err = reqs.intern(key); err != nil {
		return false, err
	}
	if len(reqs.events.list)+rec.Count > math.MaxUint32 {
		return false, errTooMany
	}
	d := &reqs.report.Disorder
	for range rec.Count {
		if r.at < *newestAt {
			d.Requests++
			d.Greatest.Duration = max(d.Greatest.Duration, time.Duration(*newestAt-r.at)*time.Microsecond)
		}
		if r.cost == 0 {
			reqs.freeRequests++
		}
		reqs.report.Requests++
		reqs.events.add(r)
	}
	*newestAt = max(*newestAt, r.at)
	return true, nil
}

func (reqs *Requests) setCost(rec *accesslog.Record, r *request) (err error) {
	switch {
	case rec.Spent.Used != nil:
		if r.cost, err = parseCost(rec.Spent.Reserved); err == nil {
			r.used, err = parseCost(rec.Spent.Used)
		}
		if r.end = max(rec.Spent.End, r.at); reqs.cfg.Fill {
			r.cost, r.used, r.end = r.used, 0, 0
		}
	case reqs.cfg.Cost != "":
		v := rec.Values[len(reqs.fields)-1]
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

// intern returns the number of a key, a new number if the key is new.
func (reqs *Requests) intern(key []byte) (uint32, error) {
	if n, ok := reqs.keyNumbers[string(key)]; ok {
		return n, nil
	}
	s := string(key)
	if err := law.ValidKey(s); err != nil {
		return 0, err
	}
	if len(reqs.keys) >= 1<<32-1 {
		return 0, errTooManyKeys
	}
	n := uint32(len(reqs.keys))
	reqs.keyBytes += int64(len(s))
	reqs.keys = append(reqs.keys, s)
	reqs.keyNumbers[s] = n
	return n, nil
}
