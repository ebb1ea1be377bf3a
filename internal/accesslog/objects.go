package accesslog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// objectReader reads one JSON object on each line.
type objectReader struct {
	*dialect
	fields
	paths       [][]string // the paths of each field: its name, then its aliases
	times       []string   // paths of the time, of which the first that exists counts
	cfg         Config
	usageReader *usageReader // nil: the format is not Usage
}

// dialect describes the JSON that some programs write.
type dialect struct {
	aliases       map[string][]string // other names of the plain fields, tried after the plain name
	times         []string            // paths of the time, of which the first that exists counts
	requiredPaths []string            // paths that every line about a request has; none: all lines are requests
	missingErr    error               // error of a line without one of requiredPaths
}

var timeNames = []string{"ts", "time", "timestamp", "@timestamp"}

// productTimes are the names of the time in logs of Istio, Cloudflare and systemd's journal.
var productTimes = []string{"start_time", "EdgeStartTimestamp", "__REALTIME_TIMESTAMP"}

// plainAliases are the other names under which programs write the plain fields.
var plainAliases = map[string][]string{
	"ip": {
		"request.client_ip", "request.remote_ip", "remote_addr", "client_ip", "remote_ip", "clientip",
		"ClientHost", "httpRequest.remoteIp", "ClientIP", "downstream_remote_address", "x_forwarded_for",
		"request.remote_addr",
	},
	"user": {"user_id", "remote_user", "username", "ClientUsername"},
	"path": {
		"request.uri", "request_uri", "uri", "url", "RequestPath", "httpRequest.requestUrl",
		"ClientRequestPath", "ClientRequestURI",
	},
	"method": {"request.method", "request_method", "RequestMethod", "httpRequest.requestMethod", "ClientRequestMethod"},
	"status": {"status_code", "DownstreamStatus", "httpRequest.status", "EdgeResponseStatus", "response_code"},
	"host":   {"request.host", "http_host", "RequestHost", "ClientRequestHost", "authority"},
	"bytes": {
		"body_bytes_sent", "bytes_sent", "size", "DownstreamContentSize", "httpRequest.responseSize",
		"EdgeResponseBytes",
	},
	"agent": {
		"http_user_agent", "user_agent", "request.headers.User-Agent.0", "httpRequest.userAgent",
		"ClientRequestUserAgent", "request_User-Agent",
	},
	"referer": {
		"http_referer", "request.headers.Referer.0", "httpRequest.referer", "ClientRequestReferer", "request_Referer",
	},
	"backend": {"RouterName"},
	"server":  {"ServiceURL"},
}

var dialects = map[Format]*dialect{
	JSON: {
		aliases: plainAliases,
		times:   slices.Concat(timeNames, []string{"at"}, productTimes), // headgate export --history writes at
	},
	Caddy: {
		aliases: plainAliases, times: timeNames, requiredPaths: []string{"request.method", "request.uri", "status"},
		missingErr: errors.New("is not of Caddy: it has no request.method, request.uri and status"),
	},
	TraefikJSON: {
		aliases: plainAliases, times: append([]string{"StartUTC", "StartLocal"}, timeNames...),
		requiredPaths: []string{"RequestMethod", "DownstreamStatus"},
		missingErr:    errors.New("is not of Traefik: it has no RequestMethod and DownstreamStatus"),
	},
	Usage: {
		aliases: map[string][]string{
			"ip":   {"remote_addr", "client_ip"},
			"user": {"user_id", "end_user", "metadata.user", "metadata.user_id"},
		},
		times: append([]string{
			"start", "start_time", "startTime", "started_at", "request_time", "created_at", "created",
		}, timeNames...),
	},
}

func openObjects(f *format, names []string, cfg Config) Reader {
	d := dialects[f.name]
	o := &objectReader{dialect: d, fields: newFields(names, cfg), times: configuredNames(cfg.Time, d.times), cfg: cfg}
	for _, name := range names {
		o.paths = append(o.paths, append([]string{name}, o.aliases[name]...))
	}
	if f.name == Usage {
		cost, settle := configuredNames(cfg.Cost, reservedNames), configuredNames(cfg.Settle, totalNames)
		o.usageReader = &usageReader{cost: cost, settle: settle}
	}
	return o
}

var (
	errJSON   = errors.New("is not JSON")
	errObject = errors.New("is JSON, but not an object")
	errNoTime = errors.New("has no time: none of ts, time, timestamp and @timestamp is there; " +
		"--time names another field")
	errBadTime  = errors.New("its time is neither RFC 3339 nor a number since the epoch")
	errNotPlain = errors.New("the field is an object or an array")
	errNotText  = errors.New("the field is not valid UTF-8")
)

func (o *objectReader) Read(line []byte) (rec Record, err error) {
	doc, err := parseObject(line)
	if doc.members == nil || err != nil {
		if json.Valid(line) {
			return rec, errObject
		}
		return rec, errJSON
	}
	for _, path := range o.requiredPaths {
		if doc.lookup(path) != nil {
			continue
		}
		if doc.lookup("level") != nil && doc.lookup("msg") != nil {
			return Record{Foreign: true, Skip: "is not about a request"}, nil
		}
		return rec, o.missingErr
	}
	at := doc.lookup(o.times...)
	if at == nil {
		return rec, errNoTime
	}
	var ok bool
	if rec.At, ok = o.cfg.parseTime(decodeText(at)); !ok {
		return rec, errBadTime
	}
	if o.usageReader != nil {
		if rec.Spent, err = o.usageReader.read(doc, rec.At); err != nil {
			return rec, err
		}
	}
	for i := range o.paths {
		o.values[i] = o.lookupValue(doc, i)
	}
	rec.Count, rec.Values = 1, o.values
	return rec, nil
}

func (o *objectReader) lookupValue(doc object, i int) Value {
	v := doc.lookup(o.paths[i]...)
	switch {
	case v == nil:
		return Value{Err: fmt.Errorf("%w: %s", ErrNoField, o.names[i])}
	case v[0] == '{' || v[0] == '[':
		return Value{Err: errNotPlain}
	case isInvalidText(v):
		return Value{Err: errNotText}
	}
	return o.value(i, decodeText(v))
}

func (o *objectReader) Notes() []string {
	if o.usageReader == nil {
		return nil
	}
	return o.usageReader.notes()
}
