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

// row has the plain fields of a line.
type row [columns][]byte

// fields selects fields.
type fields struct {
	names   []string
	proxies httpkey.Proxies
	places  []int // of each: in a row, or among the columns of a header
	values  []Value
}

func newFields(names []string, cfg Config) fields {
	return fields{names: names, proxies: cfg.Proxies, values: make([]Value, len(names))}
}

// chooseFields finds columns by name, without a header.
func chooseFields(names []string, cfg Config) fields {
	f := newFields(names, cfg)
	for _, name := range names {
		f.places = append(f.places, slices.Index(columnNames, name))
	}
	return f
}

// valuesOf returns what a line says of fields.
func valuesOf[T string | []byte](f *fields, cells []T) []Value {
	for i, n := range f.places {
		f.values[i] = f.value(i, []byte(cells[n]))
	}
	return f.values
}

// value returns what a line says of a field. Of a path that is a whole URL the scheme and the host are cut off, and of
// each its query.
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

// Notes implements Reader, for formats of which there is nothing to know.
func (f *fields) Notes() []string { return nil }

// plain reads lines that have each plain field in a place of its own.
type plain struct {
	fields
	format Format
	read   func(*plain, []byte, *row) (Record, error) // fills a row, but not Values
	row    row
	cells  [][]byte // for read
	note   string   // of read
}

func openPlain(read func(*plain, []byte, *row) (Record, error)) func(*format, []string, Config) Reader {
	return func(f *format, names []string, cfg Config) Reader {
		return &plain{fields: chooseFields(names, cfg), format: f.name, read: read}
	}
}

var (
	openCLF     = openPlain((*plain).clf)
	openHAProxy = openPlain((*plain).haproxy)
	openALB     = openPlain((*plain).alb)
	openEnvoy   = openPlain((*plain).envoy)
)

// Read implements Reader.
func (p *plain) Read(line []byte) (Record, error) {
	p.row = row{}
	rec, err := p.read(p, line, &p.row)
	if rec.Count > 0 {
		rec.Values = valuesOf(&p.fields, p.row[:])
	}
	return rec, err
}

// Notes implements Reader.
func (p *plain) Notes() []string {
	if p.note == "" {
		return nil
	}
	return []string{p.note}
}

// header is the columns of a log whose first lines name them, and where the fields stand in it.
type header struct {
	fields
	format  Format
	columns []string
}

func newHeader(f *format, names []string, cfg Config) header {
	return header{fields: newFields(names, cfg), format: f.name}
}

// set reads the names of the columns. aliases are what a plain field is called there.
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

// find returns the first of some columns that is there, or -1.
func (h *header) find(names ...string) int {
	for _, name := range names {
		if i := slices.Index(h.columns, name); i >= 0 {
			return i
		}
	}
	return -1
}

// words splits a line at its blanks into the cells that it is given, and returns them.
func words(line []byte, into [][]byte) [][]byte {
	return slices.AppendSeq(into[:0], bytes.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' }))
}

func withoutQuery(path []byte) []byte {
	// A fragment, which some clients send, is cut off too: servers that take it at all serve the same page.
	if i := bytes.IndexAny(path, "?#"); i > 0 {
		return path[:i]
	}
	return path
}

var errNoAddress = errors.New("has no address where the client's should be: key by another field")

// private are the networks of hosts within a site.
var private, _ = httpkey.ParseProxies("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "fc00::/7", "::1")

// clientAddress returns the client in a text that is an address, or a list of them as X-Forwarded-For is. Anything
// else, such as the name of a host or the word before the address, is an error: it would be counted as a client.
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
