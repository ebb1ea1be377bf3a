package accesslog

import (
	"bytes"
	"errors"
	"net/netip"
)

// clf reads the combined, the common and the vhost_combined format, and Traefik's:
//
//	HOST IDENT USER [DAY/MON/YEAR:H:M:S ZONE] "METHOD PATH PROTOCOL" STATUS BYTES "REFERER" "AGENT"
//
// The vhost_combined one begins with the name of a virtual host and a port, and Traefik's ends
// with a number, a router, a server and a time. A last quote that is missing, because the line
// was cut, does no harm.
type clf struct {
	format Format
	choice
	dates dateCache
}

// clfNames returns the fields of such a format.
func clfNames(f Format) []string {
	list := names(ip, user, method, path, status, size)
	switch f {
	case VHost:
		list = append(list, columnNames[host])
	case Combined, TraefikCLF:
		list = append(list, names(referer, agent)...)
	}
	if f == TraefikCLF {
		list = append(list, names(backend, server)...)
	}
	return list
}

func openCLF(f *format, fields []string, _ Config) (Reader, error) {
	c, err := choose(f, fields)
	if err != nil {
		return nil, err
	}
	return &clf{format: f.name, choice: c}, nil
}

// Notes implements Reader.
func (*clf) Notes() []string { return nil }

var (
	errHost    = errors.New("does not begin with a host, an identity and a user")
	errServer  = errors.New("begins with the name of a virtual host: the format is vhost_combined")
	errClient  = errors.New("does not begin with the name of a virtual host and a client")
	errTwo     = errors.New("begins with two addresses, and either may be the client's")
	errTime    = errors.New("has no time such as [17/May/2015:10:05:03 +0000] in its place")
	errRequest = errors.New("has no request in quotes after its time")
	errStatus  = errors.New("has no status of three digits after its request")
	errSize    = errors.New("has no number of bytes after its status")
	errReferer = errors.New("has no referer and agent in quotes: not the combined format")
	errTraefik = errors.New("does not end with a number, a router, a server and milliseconds: not the traefik format")
)

// Read implements Reader.
func (a *clf) Read(line []byte) (Record, error) { //nolint:gocyclo // one check for each column, in their order
	none := Record{}
	var r row
	i := bytes.IndexByte(line, ' ')
	if i <= 0 {
		return none, errHost
	}
	client, rest := clientAndRest(line, i)
	if i = bytes.IndexByte(rest, ' '); i <= 0 {
		return none, errHost
	}
	if virtual := isVirtualHost(client, rest[:i]); virtual != (a.format == VHost) {
		if virtual {
			return none, errServer
		}
		return none, errClient
	} else if virtual {
		r[host] = client
		client, rest = clientAndRest(rest, i)
		if i = bytes.IndexByte(rest, ' '); i <= 0 {
			return none, errHost
		}
	}
	if rest[0] == '(' { // as in "192.168.1.2 (203.0.113.214) -"
		return none, errTwo
	}
	r[ip], rest = client, rest[i+1:]
	if i = bytes.Index(rest, []byte(" [")); i <= 0 { // a user may contain spaces
		return none, errHost
	}
	r[user], rest = rest[:i], rest[i+2:]
	if len(rest) < 29 || rest[26] != ']' || rest[27] != ' ' || rest[28] != '"' {
		return none, errTime
	}
	at, ok := a.dates.access(rest[:26])
	if !ok {
		return none, errTime
	}
	rest = rest[29:]
	n := quoted(rest)
	if n == len(rest) {
		return none, errRequest
	}
	r[method], r[path] = splitRequest(rest[:n])
	if rest = rest[n+1:]; len(rest) < 5 || rest[0] != ' ' || !isStatus(rest[1:4]) || rest[4] != ' ' {
		return none, errStatus
	}
	r[status], rest = rest[1:4], rest[5:]
	n = number(rest)
	if n == 0 || n < len(rest) && rest[n] != ' ' {
		return none, errSize
	}
	r[size], rest = rest[:n], rest[n:]
	if a.format == Combined || a.format == TraefikCLF {
		if rest, ok = refererAndAgent(rest, &r); !ok {
			return none, errReferer
		}
	}
	if a.format == TraefikCLF && !routerAndServer(rest, &r) {
		return none, errTraefik
	}
	return Record{At: at, Count: 1, Values: a.of(&r)}, nil
}

// clientAndRest cuts the first i bytes off, or more if they begin a list of addresses, "198.51.100.7, 10.0.0.1".
func clientAndRest(line []byte, i int) (client, rest []byte) {
	for i > 0 && line[i-1] == ',' {
		n := bytes.IndexByte(line[i+1:], ' ')
		if n < 0 {
			break
		}
		i += n + 1
	}
	return line[:i], line[i+1:]
}

// isStatus reports whether three bytes are a status.
func isStatus(b []byte) bool { return len(b) == 3 && isDigit(b[0]) && isDigit(b[1]) && isDigit(b[2]) }

// number returns the length of the digits, or of the "-", that a text begins with.
func number(b []byte) (n int) {
	for n < len(b) && isDigit(b[n]) {
		n++
	}
	if n == 0 && len(b) > 0 && b[0] == '-' {
		n = 1
	}
	return n
}

// isVirtualHost reports whether a line's first word is the name of a virtual host,
// given the second one: then that is the client. Else it is the identity that
// identd told, which is "-" nearly everywhere.
func isVirtualHost(first, second []byte) bool {
	if bytes.Equal(second, dash) {
		return false
	}
	if _, err := netip.ParseAddr(string(second)); err == nil {
		return true
	}
	if _, err := netip.ParseAddr(string(first)); err == nil {
		return false // of IPv6, which may end like a port
	}
	i := bytes.LastIndexByte(first, ':')
	if i <= 0 || i == len(first)-1 {
		return false
	}
	for _, c := range first[i+1:] {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// refererAndAgent reads what follows the bytes, ` "..." "..."`, and returns what comes after.
func refererAndAgent(b []byte, r *row) (rest []byte, ok bool) {
	if len(b) < 2 || b[0] != ' ' || b[1] != '"' {
		return nil, false
	}
	b = b[2:]
	n := quoted(b)
	if n+2 >= len(b) || b[n+1] != ' ' || b[n+2] != '"' {
		return nil, false
	}
	r[referer], b = b[:n], b[n+3:]
	n = quoted(b)
	r[agent] = b[:n]
	return b[min(n+1, len(b)):], true
}

// routerAndServer reads what Traefik adds: ` 6 "router@file" "http://10.0.0.1:80" 3ms`.
func routerAndServer(b []byte, r *row) bool {
	b, ok := bytes.CutPrefix(b, []byte{' '})
	n := number(b)
	if !ok || n == 0 || len(b) < n+2 || b[n] != ' ' || b[n+1] != '"' {
		return false
	}
	b = b[n+2:]
	n = quoted(b)
	if n+2 >= len(b) || b[n+1] != ' ' || b[n+2] != '"' {
		return false
	}
	r[backend], b = b[:n], b[n+3:]
	if n = quoted(b); n+2 > len(b) || b[n+1] != ' ' {
		return false
	}
	r[server], b = b[:n], b[n+2:]
	n = number(b)
	return n > 0 && string(b[n:]) == "ms"
}

// quoted returns the place of the quote that ends a string, or the length.
func quoted(b []byte) int {
	from := 0
	for {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return len(b)
		}
		i += from
		slashes := 0
		for j := i - 1; j >= 0 && b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		from = i + 1
	}
}

var dash = []byte("-")

// splitRequest returns the method and the path, without query and fragment, of
// `GET /a?b HTTP/1.1`. What is no such thing, for example the bytes of a TLS
// greeting, has the method "-" and is its own path.
func splitRequest(r []byte) (method, path []byte) {
	i := bytes.IndexByte(r, ' ')
	if i <= 0 {
		return dash, r
	}
	method, path = r[:i], r[i+1:]
	if j := bytes.LastIndex(path, []byte(" HTTP/")); j >= 0 {
		path = path[:j]
	}
	return method, withoutQuery(path)
}

// withoutQuery cuts off a fragment too, which some clients send: servers that take
// it at all serve the same page.
func withoutQuery(path []byte) []byte {
	if i := bytes.IndexAny(path, "?#"); i > 0 {
		return path[:i]
	}
	return path
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
