package accesslog

import "bytes"

// table is the readers of logs whose lines have the columns of a header: W3C and CSV.

// header is the columns of a log, and where the fields stand in it.
type header struct {
	format Format
	fields []string
	names  []string // of the columns
	places []int    // of the fields; -1: there is none
	paths  []bool   // of the fields: a query is cut off
	values []Value
}

func newHeader(f Format, fields []string) header {
	return header{format: f, fields: fields, values: make([]Value, len(fields))}
}

// set reads the names of the columns. aliases are what a plain field is called there.
func (h *header) set(names []string, aliases map[string][]string) error {
	h.names, h.places, h.paths = names, h.places[:0], h.paths[:0]
	for _, field := range h.fields {
		n := h.find(append([]string{field}, aliases[field]...)...)
		if n < 0 {
			return noField(h.format, field, names)
		}
		h.places = append(h.places, n)
		h.paths = append(h.paths, field == columnNames[path])
	}
	return nil
}

// find returns the first of some columns that is there, or -1.
func (h *header) find(names ...string) int {
	for _, name := range names {
		for i, have := range h.names {
			if have == name {
				return i
			}
		}
	}
	return -1
}

// of returns the values of a line.
func (h *header) of(cells [][]byte) []Value {
	for i, n := range h.places {
		v := Value{Text: cells[n]}
		if h.paths[i] {
			v.Text = withoutQuery(v.Text)
		}
		h.values[i] = v
	}
	return h.values
}

// words splits a line at its blanks into the cells that it is given, and returns them.
func words(line []byte, into [][]byte) [][]byte {
	into = into[:0]
	for len(line) > 0 {
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			i = len(line)
		}
		if i > 0 {
			into = append(into, line[:i])
		}
		line = line[min(i+1, len(line)):]
	}
	return into
}
