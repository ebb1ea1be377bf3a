package accesslog

import (
	"bytes"
	"errors"
)

var (
	errEnvoyTime = errors.New("does not begin with a time such as [2016-04-15T20:17:00.310Z] and a request in quotes")
	errEnvoy     = errors.New("has not the columns of Envoy's default format, nor of Istio's")
)

// envoy reads the default lines of Envoy, and of Istio, which have the columns in brackets:
//
//	[TIME] "METHOD PATH PROTOCOL" STATUS FLAGS [DETAILS TERMINATION "FAILURE"] RECEIVED SENT MS MS
//	  "X-FORWARDED-FOR" "AGENT" "ID" "HOST" "UPSTREAM" [CLUSTER LOCAL DOWNSTREAM_LOCAL DOWNSTREAM_REMOTE SNI ROUTE]
func (p *rowReader) envoy(line []byte, r *row) (Record, error) {
	if isEnvoyLog(line) {
		return Record{Foreign: true, Skip: "is not about a request"}, nil
	}
	s := scanner{rest: line, wrong: errEnvoyTime}
	s.skip("[")
	at, ok := rfc3339(s.until(`] "`))
	s.need(ok)
	request := s.quoted()
	s.wrong = errEnvoy
	s.skip(" ")
	r[method], r[path] = splitRequest(request)
	r[status] = s.until(" ")
	s.need(onlyDigits(r[status]))
	s.until(" ")
	istio := len(s.rest) > 0 && !isDigit(s.rest[0])
	if istio {
		s.until(` "`)
		s.quoted()
		s.skip(" ")
	}
	s.need(onlyDigits(s.until(" ")))
	r[size] = s.until(" ")
	s.need(onlyDigits(r[size]) && isNumber(s.until(" ")) && isNumber(s.until(` "`)))
	for _, c := range []column{ip, agent, referer, host, server} { // referer is used for the request's id
		if r[c] = s.quoted(); c != server {
			s.skip(` "`)
		}
	}
	p.cells = splitBlanks(s.rest, p.cells)
	s.need(len(p.cells) == 0 && !istio || len(p.cells) == 6 && istio)
	if s.err == nil && istio {
		r[ip], ok = withoutPort(p.cells[3])
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
	_, ok := rfc3339(stamp)
	return ok
}
