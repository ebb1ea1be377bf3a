package accesslog

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"slices"
	"strings"
)

// separated reads comma-separated values (RFC 4180) after a header. A value does not go over the end of a line.
type separated struct {
	header
	cfg   Config
	known bool // the header was read
	time  int

	// What package csv reads lines with, so that a line needs no reader of its own.
	line   bytes.Reader
	buffer *bufio.Reader
	reader *csv.Reader
}

func openCSV(f *format, names []string, cfg Config) Reader {
	c := &separated{header: newHeader(f, names, cfg), cfg: cfg, buffer: bufio.NewReader(nil)}
	c.reader = csv.NewReader(c.buffer)
	c.reader.FieldsPerRecord, c.reader.ReuseRecord = -1, true
	return c
}

var (
	csvTimes = append([]string{"ts", "time", "timestamp", "@timestamp", "datetime", "date", "at"}, times...)

	errHeader = errors.New("is no header: no column is called ts, time, timestamp, @timestamp, datetime, date or at")
	errCells  = errors.New("has not as many columns as the header")
	errQuotes = errors.New("has a quote in a value that does not begin with one, or none at its end")
	errTwice  = errors.New("is no header: two of its columns have the same name")
)

// Read implements Reader.
func (c *separated) Read(line []byte) (Record, error) {
	if !c.known {
		return c.readHeader(line)
	}
	cells, err := c.split(line)
	if err != nil {
		return Record{}, errQuotes
	}
	if len(cells) != len(c.columns) {
		return Record{}, errCells
	}
	at, ok := c.cfg.parse([]byte(cells[c.time]))
	if !ok {
		return Record{}, errBadTime
	}
	return Record{At: at, Count: 1, Values: valuesOf(&c.fields, cells)}, nil
}

func (c *separated) readHeader(line []byte) (Record, error) {
	for _, c.reader.Comma = range []rune{',', ';', '\t'} {
		cells, err := c.split(line)
		if err != nil || len(cells) < 2 {
			continue
		}
		columns := slices.Clone(cells)
		for i, name := range columns {
			if columns[i] = strings.TrimSpace(name); slices.Contains(columns[:i], columns[i]) {
				return Record{}, errTwice
			}
		}
		c.columns = columns
		if c.time = c.find(namesOr(c.cfg.Time, csvTimes)...); c.time < 0 {
			continue
		}
		if err := c.set(columns, plainNames); err != nil {
			return Record{}, err
		}
		c.known = true
		return Record{Foreign: true, Skip: "is the header"}, nil
	}
	return Record{}, errHeader
}

// split cuts a line into its cells. It takes the quotes off them.
func (c *separated) split(line []byte) ([]string, error) {
	c.line.Reset(line)
	c.buffer.Reset(&c.line)
	return c.reader.Read()
}
