package accesslog

import (
	"bytes"
	"errors"
)

var (
	errEnvoyTime    = errors.New("does not begin with a time such as [2016-04-15T20:17:00.310Z] and a request in quotes")
	errEnvoyColumns = errors.New("has not the columns of Envoy's default format, nor of Istio's")
)

// readEnvoy reads the default lines of Envoy, and of Istio, which have the columns in brackets:
//
//	[TIME] "METHOD PATH PROTOCOL" STATUS FLAGS [DETAILS TERMINATION "FAILURE"] RECEIVED SENT MS MS
//	  "X-FORWARDED-FOR" "AGENT" "ID" "HOST" "UPSTREAM" [CLUSTER LOCAL DOWNSTREAM_LOCAL DOWNSTREAM_REMOTE SNI ROUTE]
func (rd *rowReader) readEnvoy(line []byte, r *row) (Record, error) {
	if isEnvoyLog(line) {
		return Record{Foreign: true, Skip: "is not about a request"}, nil
	}
	s := scanner{unread: line, nextErr: errEnvoyTime}
	s.skip("[")
	at, ok := parseRFC3339(s.until(`] "`))
	s.need(ok)
	request := s.quoted()
	s.nextErr = errEnvoyColumns
	s.skip(" ")
	r[colMethod], r[colPath] = splitRequest(request)
	r[colStatus] = s.until(" ")
	s.need(onlyDigits(r[colStatus]))
	s.until(" ")
	isIstio := len(s.unread) > 0 && !isDigit(s.unread[0])
	if isIstio {
		s.until(` "`)
		s.quoted()
		s.skip(" ")
	}
	s.need(onlyDigits(s.until(" ")))
	r[colBytes] = s.until(" ")
	s.need(onlyDigits(r[colBytes]) && isNumberOrDash(s.until(" ")) && isNumberOrDash(s.until(` "`)))
	for _, c := range []column{colIP, colAgent, colReferer, colHost, colServer} { // colReferer gets the request's id
		if r[c] = s.quoted(); c != colServer {
			s.skip(` "`)
		}
	}
	rd.cells = splitBlanks(s.unread, rd.cells)
	s.need(len(rd.cells) == 0 && !isIstio || len(rd.cells) == 6 && isIstio)
	if s.err == nil && isIstio {
		r[colIP], ok = cutPort(rd.cells[3])
		s.need(ok)
	}
	if s.err != nil {
		return Record{}, s.err
	}
	if string(request) == "- - -" {
		return Record{Skip: "is about a TCP connection"}, nil
	}
	return Record{At: at, Count: 1}, nil
}

// isEnvoyLog reports whether a line is from the log of Envoy itself, which begins like
// [2024-05-01 12:00:00.000][7][info], or of Istio's agent, which begins with a time and a tab.
func isEnvoyLog(line []byte) bool {
	stamp, _, tab := bytes.Cut(line, []byte{'\t'})
	if !tab {
		const length = len("2024-05-01 12:00:00.000")
		if len(line) < length+3 || line[0] != '[' || string(line[1+length:3+length]) != "][" {
			return false
		}
		stamp = line[1 : 1+length]
	}
	_, ok := parseRFC3339(stamp)
	return ok
}
