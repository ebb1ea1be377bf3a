package accesslog

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"
)

// w3c reads the W3C extended log file format (www.w3.org/TR/WD-logfile.html), as IIS writes it:
//
//	#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status
//	2002-05-24 20:18:01 172.30.255.255 GET /images/picture.jpg - 80 - 172.22.255.255 Mozilla/4.0+(...) 200
//
// CloudFront has tabs between the values. The draft's own example has no column for the date: then the latest #Date
// counts, and a time before the previous line's is of an unknown day.
type w3c struct {
	header
	ready      bool   // whether a #Fields line was read
	date, time int    // indexes of columns; date is -1 if a #Date line has the date
	day        []byte // the date of the latest #Date line
	lastTime   []byte // time of the previous line; nil after #Date
	cells      [][]byte
}

// w3cAliases are the columns of the plain fields.
var w3cAliases = map[string][]string{
	"ip": {"c-ip"}, "user": {"cs-username"}, "host": {"cs-host", "cs(Host)"}, "method": {"cs-method"},
	"path": {"cs-uri-stem", "cs-uri"}, "status": {"sc-status"}, "bytes": {"sc-bytes"},
	"referer": {"cs(Referer)"}, "agent": {"cs(User-Agent)"}, "server": {"s-ip"},
}

func openW3C(f *format, names []string, cfg Config) Reader {
	return &w3c{header: newHeader(f, names, cfg)}
}

var (
	errW3CNoFields    = errors.New("comes before a line #Fields that names the columns")
	errW3CColumnCount = errors.New("has not as many columns as #Fields names")
	errW3CNoTime      = errors.New("names no column time, or no column date where no #Date came before")
	errW3CDay         = errors.New("its time is before that of the line before, and no #Date says of which day it is")
	errW3CTime        = errors.New("its date and time are not such as 2002-05-24 20:18:01")
)

func (w *w3c) Read(line []byte) (Record, error) {
	if len(line) > 0 && line[0] == '#' {
		return w.directive(line)
	}
	if !w.ready {
		return Record{}, errW3CNoFields
	}
	if bytes.IndexByte(line, '\t') >= 0 {
		w.cells = append(w.cells[:0], bytes.Split(line, []byte{'\t'})...)
	} else {
		w.cells = splitBlanks(line, w.cells)
	}
	if len(w.cells) != len(w.columns) {
		return Record{}, errW3CColumnCount
	}
	date, clock := w.day, w.cells[w.time]
	if w.date >= 0 {
		date = w.cells[w.date]
	} else if bytes.Compare(clock, w.lastTime) < 0 {
		return Record{}, errW3CDay
	}
	if len(date) != 10 || len(clock) < 8 || len(clock) > 16 {
		return Record{}, errW3CTime
	}
	at, ok := parseRFC3339(slices.Concat(date, []byte{' '}, clock))
	if !ok {
		return Record{}, errW3CTime
	}
	w.lastTime = append(w.lastTime[:0], clock...)
	return Record{At: at, Count: 1, Values: valuesOf(&w.fields, w.cells)}, nil
}

// directive reads a line that begins with #.
func (w *w3c) directive(line []byte) (Record, error) {
	rec := Record{Foreign: true, Skip: "is a directive"}
	if date, ok := bytes.CutPrefix(line, []byte("#Date:")); ok {
		w.day, w.lastTime = parseDirectiveDate(bytes.TrimSpace(date)), nil
		return rec, nil
	}
	columns, ok := bytes.CutPrefix(line, []byte("#Fields:"))
	if !ok {
		return rec, nil
	}
	w.ready = false
	if err := w.setColumns(strings.Fields(string(columns)), w3cAliases); err != nil {
		return Record{}, err
	}
	w.date, w.time = w.findColumn("date"), w.findColumn("time")
	if w.time < 0 || w.date < 0 && w.day == nil {
		return Record{}, errW3CNoTime
	}
	w.ready = true
	return rec, nil
}

// parseDirectiveDate returns the date of a #Date line in the form of a column, or nil if there is none. The text of
// #Date is like "2026-05-03 10:00:00", or in the draft "12-Jan-1996 00:00:00".
func parseDirectiveDate(text []byte) []byte {
	date, _, _ := bytes.Cut(text, []byte{' '})
	for _, layout := range []string{time.DateOnly, "02-Jan-2006"} {
		if t, err := time.Parse(layout, string(date)); err == nil {
			return t.AppendFormat(nil, time.DateOnly)
		}
	}
	return nil
}
