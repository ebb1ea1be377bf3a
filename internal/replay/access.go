package replay

import (
	"bytes"
	"errors"
	"net/netip"
)

// access reads the combined, the common and the vhost_combined format:
//
//	HOST IDENT USER [DAY/MON/YEAR:H:M:S ZONE] "METHOD PATH PROTOCOL" STATUS BYTES "REFERER" "AGENT"
//
// The last of them begins with the name of a virtual host and a port. A last quote
// that is missing, because the line was cut, does no harm.
type access struct {
	format Format
	field  accessField
	dates  dateCache
}

type accessField uint8

const (
	fieldIP accessField = iota
	fieldUser
	fieldPath
	fieldMethod
	fieldStatus
)

var accessFields = map[string]accessField{
	"ip": fieldIP, "user": fieldUser, "path": fieldPath, "method": fieldMethod, "status": fieldStatus,
}

func newAccess(f Format, field string) (*access, error) {
	n, ok := accessFields[field]
	if !ok {
		return nil, badField(f, field, "ip, user, path, method and status")
	}
	return &access{format: f, field: n}, nil
}

var (
	errHost    = errors.New("does not begin with a host, an identity and a user")
	errServer  = errors.New("begins with the name of a virtual host: the format is vhost_combined")
	errClient  = errors.New("does not begin with the name of a virtual host and a client")
	errTime    = errors.New("has no time such as [17/May/2015:10:05:03 +0000] in its place")
	errRequest = errors.New("has no request in quotes after its time")
	errStatus  = errors.New("has no status of three digits after its request")
	errSize    = errors.New("has no number of bytes after its status")
	errReferer = errors.New("has no referer and agent in quotes: not the combined format")
)

func (a *access) read(line []byte) (record, error) { //nolint:gocyclo // one check for each column, in their order
	none := record{}
	i := bytes.IndexByte(line, ' ')
	if i <= 0 {
		return none, errHost
	}
	host, rest := line[:i], line[i+1:]
	if i = bytes.IndexByte(rest, ' '); i <= 0 {
		return none, errHost
	}
	if virtual := isVirtualHost(host, rest[:i]); virtual != (a.format == VHost) {
		if virtual {
			return none, errServer
		}
		return none, errClient
	} else if virtual {
		host, rest = rest[:i], rest[i+1:]
		if i = bytes.IndexByte(rest, ' '); i <= 0 {
			return none, errHost
		}
	}
	rest = rest[i+1:]
	if i = bytes.Index(rest, []byte(" [")); i <= 0 { // a user may contain spaces
		return none, errHost
	}
	user, rest := rest[:i], rest[i+2:]
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
	request, rest := rest[:n], rest[n+1:]
	if len(rest) < 5 || rest[0] != ' ' || !isDigit(rest[1]) || !isDigit(rest[2]) || !isDigit(rest[3]) ||
		rest[4] != ' ' {
		return none, errStatus
	}
	status, rest := rest[1:4], rest[5:]
	n = 0
	for n < len(rest) && isDigit(rest[n]) {
		n++
	}
	if n == 0 && len(rest) > 0 && rest[0] == '-' {
		n = 1
	}
	if n == 0 || n < len(rest) && rest[n] != ' ' {
		return none, errSize
	}
	if a.format == Combined && !refererAndAgent(rest[n:]) {
		return none, errReferer
	}
	rec := record{at: at, count: 1}
	switch a.field {
	case fieldIP:
		rec.key = host
	case fieldUser:
		rec.key = user
	case fieldStatus:
		rec.key = status
	case fieldMethod:
		rec.key, _ = splitRequest(request)
	case fieldPath:
		_, rec.key = splitRequest(request)
	}
	return rec, nil
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

// refererAndAgent reports whether what follows the bytes is ` "..." "...`.
func refererAndAgent(b []byte) bool {
	if len(b) < 2 || b[0] != ' ' || b[1] != '"' {
		return false
	}
	b = b[2:]
	n := quoted(b)
	return n+2 < len(b) && b[n+1] == ' ' && b[n+2] == '"'
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
