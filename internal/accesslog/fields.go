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

const (
	colIP column = iota
	colUser
	colHost
	colMethod
	colPath
	colStatus
	colBytes
	colReferer
	colAgent
	colFrontend
	colBackend // for Traefik, the router
	colServer
	columnCount
)

var columnNames = []string{
	"ip", "user", "host", "method", "path", "status", "bytes", "referer", "agent", "frontend", "backend", "server",
}

// row has the plain fields of a line, by column.
type row [columnCount][]byte

// fields extracts the requested fields from lines.
type fields struct {
	names   []string
	proxies httpkey.Proxies
	places  []int   // index of each field among the columns of a row or of a header
	values  []Value // values of the current line
}

func newFields(names []string, cfg Config) fields {
	return fields{names: names, proxies: cfg.Proxies, values: make([]Value, len(names))}
}

// newRowFields returns fields that are columns of a row.
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

// value returns the value of field i. It cuts the scheme and the host off a path that is a URL of HTTP, the query off
// each path, and finds the client in a list of addresses.
func (f *fields) value(i int, text []byte) (v Value) {
	switch v.Text = text; f.names[i] {
	case columnNames[colPath]:
		if bytes.HasPrefix(text, []byte("http://")) || bytes.HasPrefix(text, []byte("https://")) {
			_, text = splitURL(text)
		}
		v.Text = cutQuery(text)
	case columnNames[colIP]:
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

// openRows returns the open function of a format whose lines parse reads.
func openRows(parse func(*rowReader, []byte, *row) (Record, error)) func(*format, []string, Config) Reader {
	return func(f *format, names []string, cfg Config) Reader {
		return &rowReader{fields: newRowFields(names, cfg), format: f.name, parse: parse}
	}
}

var (
	openCLF     = openRows((*rowReader).readCLF)
	openHAProxy = openRows((*rowReader).readHAProxy)
	openALB     = openRows((*rowReader).readALB)
	openEnvoy   = openRows((*rowReader).readEnvoy)
)

func (rd *rowReader) Read(line []byte) (Record, error) {
	rd.row = row{}
	rec, err := rd.parse(rd, line, &rd.row)
	if rec.Count > 0 {
		rec.Values = valuesOf(&rd.fields, rd.row[:])
	}
	return rec, err
}

func (rd *rowReader) Notes() []string {
	if rd.note == "" {
		return nil
	}
	return []string{rd.note}
}

// header has the columns of a log of which a line names them, and finds the fields among them.
type header struct {
	fields
	format  Format
	columns []string
}

func newHeader(f *format, names []string, cfg Config) header {
	return header{fields: newFields(names, cfg), format: f.name}
}

// setColumns sets the columns and finds each field by its name or by one of its aliases.
func (h *header) setColumns(columns []string, aliases map[string][]string) error {
	h.columns, h.places = columns, h.places[:0]
	for _, field := range h.names {
		n := h.findColumn(append([]string{field}, aliases[field]...)...)
		if n < 0 {
			return noField(h.format, field, columns)
		}
		h.places = append(h.places, n)
	}
	return nil
}

// findColumn returns the index of the first of the names that is a column, or -1.
func (h *header) findColumn(names ...string) int {
	for _, name := range names {
		if i := slices.Index(h.columns, name); i >= 0 {
			return i
		}
	}
	return -1
}

// splitBlanks splits a line at its blanks. It reuses the memory of buffer.
func splitBlanks(line []byte, buffer [][]byte) [][]byte {
	return slices.AppendSeq(buffer[:0], bytes.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' }))
}

// cutQuery cuts off a path the query, and a fragment, which some clients send: servers that accept one ignore it.
func cutQuery(path []byte) []byte {
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
	client, err := proxies.ForwardedClient(netip.Addr{}, http.Header{httpkey.Forwarded: {string(text)}})
	if err != nil || !client.IsValid() {
		return nil, errNoAddress
	}
	return []byte(client.String()), nil
}
