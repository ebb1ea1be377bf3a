package accesslog

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"slices"
	"strings"
)

// csvReader reads values separated by commas (RFC 4180), semicolons or tabs, after a header. A value cannot span lines.
type csvReader struct {
	header
	cfg   Config
	ready bool // whether the header was read
	time  int  // index of the column with the time

	// reader reads lines from buffer, and buffer from line, so that lines need no new reader.
	line   bytes.Reader
	buffer *bufio.Reader
	reader *csv.Reader
}

func openCSV(f *format, names []string, cfg Config) Reader {
	c := &csvReader{header: newHeader(f, names, cfg), cfg: cfg, buffer: bufio.NewReader(nil)}
	c.reader = csv.NewReader(c.buffer)
	c.reader.FieldsPerRecord, c.reader.ReuseRecord = -1, true
	return c
}

var (
	csvTimes = append([]string{"ts", "time", "timestamp", "@timestamp", "datetime", "date", "at"}, productTimes...)

	errCSVHeader = errors.New(
		"is no header: no column is called ts, time, timestamp, @timestamp, datetime, date or at")
	errColumnCount = errors.New("has not as many columns as the header")
	errCSVQuotes   = errors.New("has a quote in a value that does not begin with one, or none at its end")
	errDuplicate   = errors.New("is no header: two of its columns have the same name")
)

func (c *csvReader) Read(line []byte) (Record, error) {
	if !c.ready {
		return c.readHeader(line)
	}
	cells, err := c.split(line)
	if err != nil {
		return Record{}, errCSVQuotes
	}
	if len(cells) != len(c.columns) {
		return Record{}, errColumnCount
	}
	at, ok := c.cfg.parseTime([]byte(cells[c.time]))
	if !ok {
		return Record{}, errBadTime
	}
	return Record{At: at, Count: 1, Values: valuesOf(&c.fields, cells)}, nil
}

// readHeader finds the separator, the column of the time and the fields.
func (c *csvReader) readHeader(line []byte) (Record, error) {
	for _, c.reader.Comma = range []rune{',', ';', '\t'} {
		cells, err := c.split(line)
		if err != nil || len(cells) < 2 {
			continue
		}
		columns := slices.Clone(cells)
		for i, name := range columns {
			if columns[i] = strings.TrimSpace(name); slices.Contains(columns[:i], columns[i]) {
				return Record{}, errDuplicate
			}
		}
		c.columns = columns
		if c.time = c.findColumn(configuredNames(c.cfg.Time, csvTimes)...); c.time < 0 {
			continue
		}
		if err := c.setColumns(columns, plainAliases); err != nil {
			return Record{}, err
		}
		c.ready = true
		return Record{Foreign: true, Skip: "is the header"}, nil
	}
	return Record{}, errCSVHeader
}

// split splits a line into its cells, without their quotes.
func (c *csvReader) split(line []byte) ([]string, error) {
	c.line.Reset(line)
	c.buffer.Reset(&c.line)
	return c.reader.Read()
}
