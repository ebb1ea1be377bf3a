package accesslog

import (
	"bytes"
	"errors"
	"slices"
)

var (
	errALBTime    = errors.New("does not begin with a type of ALB's and a time, or a time")
	errALBClient  = errors.New("has no client with a port in its place")
	errALBColumns = errors.New("has not the columns of a load balancer's log before its request")
	errALBRequest = errors.New("has no request and agent in quotes in their place")
)

// albTypes are the first words of an Application Load Balancer's lines.
var albTypes = []string{"http", "https", "h2", "grpcs", "ws", "wss"}

// readALB reads the access log of AWS's load balancers:
//
//	TYPE TIME ELB CLIENT:PORT TARGET:PORT 0.000 0.001 0.000 200 200 34 366 "GET URL HTTP/1.1" "AGENT" CIPHER TLS ...
//
// The Classic one has no type.
func (rd *rowReader) readALB(line []byte, r *row) (Record, error) {
	columns, rest, ok := bytes.Cut(line, []byte(` "`))
	rd.cells = splitBlanks(columns, rd.cells)
	c := rd.cells
	if len(c) > 0 && slices.Contains(albTypes, string(c[0])) {
		c = c[1:]
	}
	if len(c) == 0 {
		return Record{}, errALBTime
	}
	at, valid := parseRFC3339(c[0])
	if !valid || c[0][10] != 'T' {
		return Record{}, errALBTime
	}
	if len(c) != 11 {
		return Record{}, errALBColumns
	}
	for i, cell := range c[4:] {
		isNumber := isDecimal(cell) || string(cell) == "-1" || string(cell) == "-"
		if !isNumber || (i == 3 || i == 4) && len(cell) != 3 && len(cell) != 1 { // both statuses
			return Record{}, errALBColumns
		}
	}
	if r[colIP], valid = cutPort(c[2]); !valid {
		return Record{}, errALBClient
	}
	s := scanner{unread: rest, nextErr: errALBRequest}
	s.need(ok)
	r[colMethod], r[colPath] = splitRequest(s.quoted())
	s.skip(` "`)
	if r[colAgent] = s.quoted(); s.err != nil {
		return Record{}, s.err
	}
	r[colServer], r[colStatus], r[colBytes] = c[3], c[7], c[10]
	r[colHost], r[colPath] = splitURL(r[colPath])
	return Record{At: at, Count: 1}, nil
}

// splitURL splits https://www.example.com:443/a into its host without the port and its path. Anything else is a path.
func splitURL(url []byte) (host, path []byte) {
	_, rest, ok := bytes.Cut(url, []byte("://"))
	if !ok {
		return absentValue, url
	}
	host, _, _ = bytes.Cut(rest, []byte{'/'})
	path = rest[len(host):]
	if j := bytes.LastIndexByte(host, ':'); j > 0 && onlyDigits(host[j+1:]) {
		host = host[:j]
	}
	if len(path) == 0 {
		path = []byte{'/'}
	}
	return host, path
}
