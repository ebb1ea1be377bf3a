package accesslog

import (
	"bytes"
	"errors"
	"net/netip"
)

var (
	errHAProxyStart   = errors.New("has neither haproxy[PID]: nor an address with a port at its beginning")
	errHAProxyClient  = errors.New("has no address with a port, followed by a time in brackets")
	errHAProxyTime    = errors.New("has no time such as [06/Feb/2009:12:14:14.655] in its place")
	errHAProxyRequest = errors.New("is not of HAProxy's HTTP log: it has no request in quotes")
	errHAProxyColumns = errors.New("has not the columns of HAProxy's HTTP log")
)

// readHAProxy reads HAProxy's HTTP log, with or without the beginning of a syslog line:
//
//	Feb  6 12:14:14 HOST haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in
//	  static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"
func (rd *rowReader) readHAProxy(line []byte, r *row) (Record, error) {
	rest, hasTag := cutHAProxyTag(line)
	if !hasTag {
		rest = line
	}
	client, rest, ok := bytes.Cut(rest, []byte(" ["))
	if !ok || bytes.IndexByte(client, ' ') >= 0 {
		switch {
		case hasTag:
			return Record{Skip: "is not about a request"}, nil
		case hasSyslogTime(line) && bytes.Contains(line, []byte(": ")): // after a host and a program
			return Record{Foreign: true, Skip: "is of another program"}, nil
		}
		return Record{}, errHAProxyStart
	}
	if r[colIP], ok = cutPort(client); !ok {
		return Record{}, errHAProxyClient
	}
	// The time has a fraction and no zone: 06/Feb/2009:12:14:14.655
	if len(rest) < 26 || rest[20] != '.' || rest[24] != ']' || rest[25] != ' ' {
		return Record{}, errHAProxyTime
	}
	at, ok := parseCLFTime(append(rest[:20:20], " +0000"...))
	ms, isNumber := parseDigits(rest[21:24])
	if !ok || !isNumber {
		return Record{}, errHAProxyTime
	}
	if err := rd.readHAProxyColumns(rest[26:], r); err != nil {
		return Record{}, err
	}
	rd.note = "the times of HAProxy have no zone; they are taken as UTC"
	return Record{At: at + ms*1000, Count: 1}, nil
}

// readHAProxyColumns reads the part of a line after the time: frontend, backend/server, timers, status, bytes, two
// cookies, state, connections, queues, and the request.
func (rd *rowReader) readHAProxyColumns(b []byte, r *row) error {
	columns, request, ok := bytes.Cut(b, []byte(` "`))
	n := bytes.LastIndexByte(request, '"') // the last quote of the line: a request may contain quotes
	if !ok || n < 0 {
		return errHAProxyRequest
	}
	rd.cells = splitBlanks(columns, rd.cells)
	cells := rd.cells
	if len(cells) < 10 {
		return errHAProxyColumns
	}
	cells[4] = bytes.TrimPrefix(cells[4], []byte{'+'}) // option logasap marks bytes sent so far
	if !isStatus(cells[3]) && string(cells[3]) != "-1" || !isNumberOrDash(cells[4]) ||
		bytes.Count(cells[2], []byte{'/'}) != 4 || len(cells[7]) != 4 || bytes.Count(cells[8], []byte{'/'}) != 4 {
		return errHAProxyColumns
	}
	r[colFrontend] = bytes.TrimSuffix(cells[0], []byte{'~'}) // marks TLS
	if r[colBackend], r[colServer], ok = bytes.Cut(cells[1], []byte{'/'}); !ok {
		return errHAProxyColumns
	}
	r[colStatus], r[colBytes] = cells[3], cells[4]
	if i := bytes.IndexByte(request, '"'); i < n {
		n = i // option httpslog appends columns to the request
	}
	r[colMethod], r[colPath] = splitRequest(request[:n])
	return nil
}

// cutHAProxyTag returns the text after a tag such as "haproxy[14389]: ". ok is false if there is none.
func cutHAProxyTag(line []byte) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(line, []byte("haproxy["))
	if !ok {
		if _, rest, ok = bytes.Cut(line, []byte(" haproxy[")); !ok {
			return nil, false
		}
	}
	pid, rest, ok := bytes.Cut(rest, []byte("]: "))
	return rest, ok && isNumberOrDash(pid)
}

// cutPort returns an address without its port and brackets. ok is false if the address or the port is missing.
func cutPort(b []byte) (addr []byte, ok bool) {
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
