package accesslog

import (
	"bytes"
	"errors"
	"net/http"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/httpkey"
)

// column is a plain field of an access log.
type column int

// The plain fields.
const (
	ip column = iota
	user
	host
	method
	path
	status
	size
	referer
	agent
	frontend
	backend
	server
	columns
)

var columnNames = []string{
	"ip", "user", "host", "method", "path", "status", "bytes", "referer", "agent", "frontend", "backend", "server",
}

// row has the plain fields of a line, by column.
type row [columns][]byte

// fields extracts the requested fields from lines.
type fields struct {
	names   []string
	proxies httpkey.Proxies
	places  []int   // index of each field in a row, or among the columns of a header
	values  []Value // of the current line
}

func newFields(names []string, cfg Config) fields {
	return fields{names: names, proxies: cfg.Proxies, values: make([]Value, len(names))}
}

// newRowFields returns fields whose places are columns of a row.
func newRowFields(names []string, cfg Config) fields {
	f := newFields(names, cfg)
	for _, name := range names {
		f.places = append(f.places, slices.Index(columnNames, name))
	}
	return f
}

// valuesOf returns the values of the fields, given all cells of a line.
func valuesOf[T string | []byte](f *fields, cells []T) []Value {
	for i, n := range f.places {
		f.values[i] = f.value(i, []byte(cells[n]))
	}
	return f.values
}

// value returns the value of field i. It cuts the scheme and the host off a path that is a whole URL, and the query off
// each path, and finds the client in a list of addresses.
func (f *fields) value(i int, text []byte) (v Value) {
	switch v.Text = text; f.names[i] {
	case columnNames[path]:
		if bytes.HasPrefix(text, []byte("http://")) || bytes.HasPrefix(text, []byte("https://")) {
			_, text = splitURL(text)
		}
		v.Text = withoutQuery(text)
	case columnNames[ip]:
		v.Text, v.Err = clientAddress(text, f.proxies)
	}
	return v
}

// Notes implements Reader for formats without remarks.
func (f *fields) Notes() []string { return nil }

// rowReader reads the lines of formats that consist of plain fields.
type rowReader struct {
	fields
	format Format
	parse  func(*rowReader, []byte, *row) (Record, error) // fills the row, but not Record.Values
	row    row
	cells  [][]byte // buffer of parse
	note   string   // set by parse
}

// openRows returns a function that opens a reader with a function that parses lines.
func openRows(parse func(*rowReader, []byte, *row) (Record, error)) func(*format, []string, Config) Reader {
	return func(f *format, names []string, cfg Config) Reader {
		return &rowReader{fields: newRowFields(names, cfg), format: f.name, parse: parse}
	}
}

var (
	openCLF     = openRows((*rowReader).clf)
	openHAProxy = openRows((*rowReader).haproxy)
	openALB     = openRows((*rowReader).alb)
	openEnvoy   = openRows((*rowReader).envoy)
)

// Read implements Reader.
func (p *rowReader) Read(line []byte) (Record, error) {
	p.row = row{}
	rec, err := p.parse(p, line, &p.row)
	if rec.Count > 0 {
		rec.Values = valuesOf(&p.fields, p.row[:])
	}
	return rec, err
}

// Notes implements Reader.
func (p *rowReader) Notes() []string {
	if p.note == "" {
		return nil
	}
	return []string{p.note}
}

// header has the columns of a log whose first lines name them, and finds the fields among them.
type header struct {
	fields
	format  Format
	columns []string
}

func newHeader(f *format, names []string, cfg Config) header {
	return header{fields: newFields(names, cfg), format: f.name}
}

// set sets the columns and finds each field by its name or by one of its aliases.
func (h *header) set(columns []string, aliases map[string][]string) error {
	h.columns, h.places = columns, h.places[:0]
	for _, field := range h.names {
		n := h.find(append([]string{field}, aliases[field]...)...)
		if n < 0 {
			return noField(h.format, field, columns)
		}
		h.places = append(h.places, n)
	}
	return nil
}

// find returns the index of the first of the names that is a column, or -1.
func (h *header) find(names ...string) int {
	for _, name := range names {
		if i := slices.Index(h.columns, name); i >= 0 {
			return i
		}
	}
	return -1
}

// splitBlanks splits a line at its blanks. It reuses the memory of into.
func splitBlanks(line []byte, into [][]byte) [][]byte {
	return slices.AppendSeq(into[:0], bytes.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' }))
}

// withoutQuery cuts the query off a path, and the fragment that some clients send: servers that accept one serve the
// same page.
func withoutQuery(path []byte) []byte {
	if i := bytes.IndexAny(path, "?#"); i > 0 {
		return path[:i]
	}
	return path
}

var errNoAddress = errors.New("has no address where the client's should be: key by another field")

// privateNetworks are the networks of hosts within a site.
var privateNetworks, _ = httpkey.ParseProxies(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "fc00::/7", "::1")

// clientAddress returns the client's address from a text that is an address or a list like X-Forwarded-For. Any other
// text, such as the name of a host, is an error, since it would be counted as a client.
func clientAddress(text []byte, proxies httpkey.Proxies) ([]byte, error) {
	if a, err := netip.ParseAddr(string(text)); err == nil && a.Is4() {
		return text, nil
	}
	client, err := proxies.Before(netip.Addr{}, http.Header{httpkey.Forwarded: {string(text)}})
	if err != nil || !client.IsValid() {
		return nil, errNoAddress
	}
	return []byte(client.String()), nil
}
