package accesslog

import (
	"bytes"
	"errors"
)

// csv reads comma-separated values (RFC 4180) after a header. A value does not go over the end of a line.
type csv struct {
	header
	comma byte // 0: the header was not read yet
	time  int
	cells [][]byte
}

func openCSV(f *format, fields []string, _ Config) (Reader, error) {
	return &csv{header: newHeader(f.name, fields)}, nil
}

var (
	csvTimes = []string{"ts", "time", "timestamp", "@timestamp", "datetime", "date", "at"}

	errHeader = errors.New("is no header: no column is called ts, time, timestamp, @timestamp, datetime, date or at")
	errCells  = errors.New("has not as many columns as the header")
	errQuotes = errors.New("has a quote in a value that does not begin with one, or none at its end")
	errTwice  = errors.New("is no header: two of its columns have the same name")
)

// Read implements Reader.
func (c *csv) Read(line []byte) (Record, error) {
	if c.comma == 0 {
		return c.readHeader(line)
	}
	cells, ok := split(line, c.comma, c.cells)
	if c.cells = cells; !ok {
		return Record{}, errQuotes
	}
	if len(c.cells) != len(c.names) {
		return Record{}, errCells
	}
	at, ok := anyTime(c.cells[c.time])
	if !ok {
		return Record{}, errBadTime
	}
	return Record{At: at, Count: 1, Values: c.of(c.cells)}, nil
}

func (c *csv) readHeader(line []byte) (Record, error) {
	for _, comma := range []byte{',', ';', '\t'} {
		cells, ok := split(line, comma, nil)
		if !ok || len(cells) < 2 {
			continue
		}
		var columns []string
		for _, cell := range cells {
			name := string(bytes.TrimSpace(cell))
			if has(columns, name) {
				return Record{}, errTwice
			}
			columns = append(columns, name)
		}
		c.names = columns
		if c.time = c.find(csvTimes...); c.time < 0 {
			continue
		}
		if err := c.set(columns, dialects[JSON].aliases); err != nil {
			return Record{}, err
		}
		c.comma = comma
		return Record{Foreign: true, Skip: "is the header"}, nil
	}
	return Record{}, errHeader
}

// split cuts a line at its commas. It takes the quotes off its cells.
func split(line []byte, comma byte, cells [][]byte) ([][]byte, bool) {
	cells = cells[:0]
	for {
		if len(line) == 0 || line[0] != '"' {
			i := bytes.IndexByte(line, comma)
			end := i
			if i < 0 {
				end = len(line)
			}
			if bytes.IndexByte(line[:end], '"') >= 0 {
				return cells, false
			}
			cells = append(cells, line[:end])
			if i < 0 {
				return cells, true
			}
			line = line[end+1:]
			continue
		}
		cell, rest, ok := unquote(line[1:])
		if !ok || len(rest) > 0 && rest[0] != comma {
			return cells, false
		}
		cells = append(cells, cell)
		if len(rest) == 0 {
			return cells, true
		}
		line = rest[1:]
	}
}

// unquote reads a value up to the quote that ends it. Two quotes stand for one.
func unquote(b []byte) (value, rest []byte, ok bool) {
	twice := false
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] != '"':
		case i+1 < len(b) && b[i+1] == '"':
			twice = true
			i++
		default:
			if value = b[:i]; twice {
				value = bytes.ReplaceAll(value, []byte(`""`), []byte(`"`))
			}
			return value, b[i+1:], true
		}
	}
	return nil, nil, false
}

// Notes implements Reader.
func (*csv) Notes() []string { return nil }
