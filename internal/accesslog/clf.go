package accesslog

import (
	"bytes"
	"errors"
	"net/netip"
)

var (
	errCLFStart   = errors.New("does not begin with a host, an identity and a user")
	errVHost      = errors.New("begins with the name of a virtual host: the format is vhost_combined")
	errNoVHost    = errors.New("does not begin with the name of a virtual host and a client")
	errTwoClients = errors.New("begins with two addresses, and either may be the client's")
	errCLFTime    = errors.New("has no time such as [17/May/2015:10:05:03 +0000] in its place")
	errCLFRequest = errors.New("has no request in quotes after its time")
	errCLFStatus  = errors.New("has no status of three digits after its request")
	errCLFBytes   = errors.New("has no number of bytes after its status")
	errNoAgent    = errors.New("has no referer and agent in quotes: not the combined format")
	errTraefikEnd = errors.New("does not end with a number, a router, a server and milliseconds: not the traefik format")
)

// readCLF reads the combined, the common and the vhost_combined format, and Traefik's:
//
//	CLIENT IDENT USER [DAY/MON/YEAR:H:M:S ZONE] "METHOD PATH PROTOCOL" STATUS BYTES "REFERER" "AGENT"
//
// The common and the vhost_combined format, which begins with a virtual host and a port, are read up to BYTES.
// Traefik's ends with a number, a router, a server and a time. The last quote of the combined format may be missing,
// since programs cut long lines.
func (rd *rowReader) readCLF(line []byte, r *row) (Record, error) {
	s := scanner{unread: line, nextErr: errCLFStart}
	r[colIP] = s.client()
	second, _, _ := bytes.Cut(s.unread, []byte{' '})
	switch isVirtual := isVirtualHost(r[colIP], second); {
	case s.err != nil || len(second) == 0:
		return Record{}, errCLFStart
	case isVirtual && rd.format != VHost:
		return Record{}, errVHost
	case isVirtual:
		r[colHost], r[colIP] = r[colIP], s.client()
	case rd.format == VHost:
		return Record{}, errNoVHost
	}
	if bytes.HasPrefix(s.unread, []byte{'('}) { // as in "192.168.1.2 (203.0.113.214) -"
		return Record{}, errTwoClients
	}
	s.until(" ")               // skip the identity
	r[colUser] = s.until(" [") // a user may contain spaces
	s.nextErr = errCLFTime
	at, ok := parseCLFTime(s.until(`] "`))
	s.need(ok)
	s.nextErr = errCLFRequest
	r[colMethod], r[colPath] = splitRequest(s.quoted())
	s.nextErr = errCLFStatus
	s.skip(" ")
	r[colStatus] = s.until(" ")
	s.need(isStatus(r[colStatus]))
	s.nextErr = errCLFBytes
	r[colBytes], s.unread, _ = bytes.Cut(s.unread, []byte{' '})
	s.need(isNumberOrDash(r[colBytes]))
	if rd.format == Combined || rd.format == TraefikCLF {
		s.nextErr = errNoAgent
		s.skip(`"`)
		r[colReferer] = s.quoted()
		s.skip(` "`)
		r[colAgent] = s.unread[:closingQuote(s.unread)]
	}
	if rd.format == TraefikCLF { // 6 "router@file" "http://10.0.0.1:80" 3ms
		s.nextErr = errTraefikEnd
		s.quoted()
		s.skip(" ")
		s.need(isNumberOrDash(s.until(` "`)))
		r[colBackend] = s.quoted()
		s.skip(` "`)
		r[colServer] = s.quoted()
		s.skip(" ")
		s.need(isNumberOrDash(s.until("ms")) && len(s.unread) == 0)
	}
	if s.err != nil {
		return Record{}, s.err
	}
	return Record{At: at, Count: 1}, nil
}

// client returns the next word, or the words of a list of addresses such as "198.51.100.7, 10.0.0.1".
func (s *scanner) client() []byte {
	line := s.unread
	list := s.until(" ")
	for s.err == nil && bytes.HasSuffix(list, []byte{','}) {
		list = line[:len(list)+1+len(s.until(" "))]
	}
	return list
}

func isStatus(b []byte) bool { return len(b) == 3 && onlyDigits(b) }

// isNumberOrDash reports whether a text is digits, or "-" for a missing number.
func isNumberOrDash(b []byte) bool { return len(b) > 0 && onlyDigits(b) || string(b) == "-" }

// isVirtualHost reports whether a line's first word is the name of a virtual host, so that the second word is the
// client. Otherwise the second word is the answer of identd, which is "-" nearly everywhere.
func isVirtualHost(first, second []byte) bool {
	if string(second) == "-" {
		return false
	}
	if _, err := netip.ParseAddr(string(second)); err == nil {
		return true
	}
	if _, err := netip.ParseAddr(string(first)); err == nil {
		return false // an address in IPv6 may end like a port
	}
	i := bytes.LastIndexByte(first, ':')
	return i > 0 && i < len(first)-1 && onlyDigits(first[i+1:])
}

var absentValue = []byte("-") // what logs write for a missing value

// splitRequest returns the method and the path, without query and fragment, of a request such as `GET /a?b HTTP/1.1`.
// Anything else, for example the bytes of a TLS greeting, is returned as the path, with the method "-".
func splitRequest(request []byte) (method, path []byte) {
	method, path, ok := bytes.Cut(request, []byte{' '})
	if !ok || len(method) == 0 {
		return absentValue, request
	}
	if j := bytes.LastIndex(path, []byte(" HTTP/")); j >= 0 {
		path = path[:j]
	}
	return method, cutQuery(path)
}
