package accesslog

import (
	"bytes"
	"errors"
	"net/netip"
)

var (
	errNoHAProxy = errors.New("has neither haproxy[PID]: nor an address with a port at its beginning")
	errClientIP  = errors.New("has no address with a port, followed by a time in brackets")
	errAccept    = errors.New("has no time such as [06/Feb/2009:12:14:14.655] in its place")
	errTCPLog    = errors.New("is not of HAProxy's HTTP log: it has no request in quotes")
	errHTTPLog   = errors.New("has not the columns of HAProxy's HTTP log")
)

// haproxy reads HAProxy's HTTP log, with or without the beginning of a syslog line:
//
//	Feb  6 12:14:14 HOST haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in
//	  static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"
func (p *rowReader) haproxy(line []byte, r *row) (Record, error) {
	rest, syslog := afterHAProxy(line)
	if !syslog {
		rest = line
	}
	client, rest, ok := bytes.Cut(rest, []byte(" ["))
	if !ok || bytes.IndexByte(client, ' ') >= 0 {
		switch {
		case syslog:
			return Record{Skip: "is not about a request"}, nil
		case hasSyslogTime(line) && bytes.Contains(line, []byte(": ")): // after a host and a program
			return Record{Foreign: true, Skip: "is of another program"}, nil
		}
		return Record{}, errNoHAProxy
	}
	if r[ip], ok = withoutPort(client); !ok {
		return Record{}, errClientIP
	}
	// The time has a fraction and no zone: 06/Feb/2009:12:14:14.655
	if len(rest) < 26 || rest[20] != '.' || rest[24] != ']' || rest[25] != ' ' {
		return Record{}, errAccept
	}
	at, ok := accessTime(append(rest[:20:20], " +0000"...))
	ms, isNumber := digits(rest[21:24])
	if !ok || !isNumber {
		return Record{}, errAccept
	}
	if err := p.columns(rest[26:], r); err != nil {
		return Record{}, err
	}
	p.note = "the times of HAProxy have no zone; they are taken as UTC"
	return Record{At: at + ms*1000, Count: 1}, nil
}

// columns reads the part of a line after the time.
func (p *rowReader) columns(b []byte, r *row) error {
	columns, request, ok := bytes.Cut(b, []byte(` "`))
	n := bytes.LastIndexByte(request, '"') // the last quote of the line: a request may contain quotes
	if !ok || n < 0 {
		return errTCPLog
	}
	p.cells = splitBlanks(columns, p.cells)
	c := p.cells
	if len(c) < 10 {
		return errHTTPLog
	}
	c[4] = bytes.TrimPrefix(c[4], []byte{'+'}) // option logasap marks bytes sent so far
	if !isStatus(c[3]) && string(c[3]) != "-1" || !isNumber(c[4]) ||
		bytes.Count(c[2], []byte{'/'}) != 4 || len(c[7]) != 4 || bytes.Count(c[8], []byte{'/'}) != 4 {
		return errHTTPLog
	}
	r[frontend] = bytes.TrimSuffix(c[0], []byte{'~'}) // marks TLS
	if r[backend], r[server], ok = bytes.Cut(c[1], []byte{'/'}); !ok {
		return errHTTPLog
	}
	r[status], r[size] = c[3], c[4]
	if i := bytes.IndexByte(request, '"'); i < n {
		n = i // option httpslog appends columns to the request
	}
	r[method], r[path] = splitRequest(request[:n])
	return nil
}

// afterHAProxy returns the text after "haproxy[14389]: ".
func afterHAProxy(line []byte) (rest []byte, ok bool) {
	if rest, ok = bytes.CutPrefix(line, []byte("haproxy[")); !ok {
		_, rest, _ = bytes.Cut(line, []byte(" haproxy["))
	}
	pid, rest, ok := bytes.Cut(rest, []byte("]: "))
	return rest, ok && isNumber(pid)
}

// withoutPort returns an address without its port; ok is false if either is missing.
func withoutPort(b []byte) (addr []byte, ok bool) {
	i := bytes.LastIndexByte(b, ':')
	if i <= 0 || i == len(b)-1 || !onlyDigits(b[i+1:]) {
		return nil, false
	}
	host := b[:i]
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	_, err := netip.ParseAddr(string(host))
	return host, err == nil
}
