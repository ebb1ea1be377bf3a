// Package accesslog reads the logs of web servers, proxies and load balancers, and detects the format of a log.
//
// It never guesses a value: Read returns an error that says why a line does not have the format.
package accesslog

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"

	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/law"
)

// Format is the way in which a log writes its lines.
type Format string

const (
	// TraefikCLF is Traefik's default: Combined, then the number of requests, the router, the server and milliseconds.
	TraefikCLF Format = "traefik"
	// Combined is the access log of Apache and nginx with referer and agent.
	Combined Format = "combined"
	// Common is Combined without referer and agent; the rest of a line is ignored.
	Common Format = "common"
	// VHost is Common after the name and perhaps the port of a virtual host, as Debian's Apache writes it:
	// "example.com:80 192.0.2.1 - - [...". What follows the number of bytes is ignored.
	VHost Format = "vhost_combined"
	// HAProxy is HAProxy's HTTP log (option httplog), with or without the beginning of a syslog line. Its times have no
	// zone and are read as UTC.
	HAProxy Format = "haproxy"
	// ALB is the access log of AWS's Application Load Balancer, and of the Classic one, which has no type in front. The
	// time is the first in a line, of the response in the former and of the request in the latter.
	ALB Format = "alb"
	// Envoy is the default text of Envoy, where ip is from X-Forwarded-For, and of Istio, where ip is the remote
	// address. Lines of Envoy itself, of Istio's agent and of TCP connections are skipped.
	Envoy Format = "envoy"
	// W3C is the extended log file format that IIS writes. The latest #Fields line names the columns. Times are UTC.
	W3C Format = "iis"
	// Caddy is Caddy's JSON; lines of its other loggers are skipped.
	Caddy Format = "caddy"
	// TraefikJSON is Traefik's JSON. The time is StartUTC, or else StartLocal, ts, time, timestamp or @timestamp.
	TraefikJSON Format = "traefik_json"
	// Usage is JSON with the tokens of calls of language models; see [Spent].
	Usage Format = "usage"
	// JSON is one object on each line. Its time is the first of ts, time, timestamp, @timestamp, at, start_time
	// (Istio), EdgeStartTimestamp (Cloudflare) and __REALTIME_TIMESTAMP (systemd): RFC 3339, as in Common, or since the
	// epoch in seconds, milliseconds or finer. A field is a path such as request.ip or headers.Host.0; the plain fields
	// are also found under the names that nginx and others use. See also Config.Time.
	JSON Format = "json"
	// CSV has a header that names the fields, separated by commas, semicolons or tabs. The time is the first column of
	// ts, time, timestamp, @timestamp, datetime, date, at and the names that JSON has for products.
	CSV Format = "csv"
	// SSHD is the syslog of an SSH server. Each line "Failed password", "Failed keyboard-interactive" or "Invalid user"
	// is a request, by ip or user; other lines are skipped. With Config.Attempts, "Invalid user" and the first password
	// that fails for that user are one request, and "message repeated 5 times" is five. Times without a zone are UTC.
	SSHD Format = "sshd"
)

type format struct {
	name    Format
	about   string // for help texts
	fields  string // names of the fields, separated by blanks; empty: the lines of the log name them
	open    func(*format, []string, Config) Reader
	general Format // a more general format, which also reads these lines; "": none
}

// formatTable has all formats, in the order in which Detect tries them.
var formatTable = []format{
	{TraefikCLF, "Traefik's common log format", commonFields + " referer agent backend server", openCLF, Combined},
	{Combined, "nginx and Apache, with referer and agent", commonFields + " referer agent", openCLF, Common},
	{Common, "Apache's common log format", commonFields, openCLF, ""},
	{VHost, "Apache and nginx, after the name of a virtual host", commonFields + " host", openCLF, ""},
	{HAProxy, "HAProxy's HTTP log", "ip method path status bytes frontend backend server", openHAProxy, ""},
	{ALB, "AWS Application and Classic Load Balancer", "ip host method path status bytes agent server", openALB, ""},
	{Envoy, "Envoy's and Istio's default lines", "ip host method path status bytes agent server", openEnvoy, ""},
	{W3C, "IIS and others, W3C extended with #Fields", "", openW3C, ""},
	{Caddy, "Caddy's JSON", "", openObjects, JSON},
	{TraefikJSON, "Traefik's JSON", "", openObjects, JSON},
	{Usage, "JSON lines of model calls with tokens", "", openObjects, JSON},
	{JSON, "JSON lines", "", openObjects, ""},
	{CSV, "comma-separated values with a header", "", openCSV, ""},
	{SSHD, "sshd's lines in a syslog", "ip user", openSSHD, ""},
}

const commonFields = "ip user method path status bytes"

// Formats returns the names of all formats, in the order in which Detect tries them.
func Formats() []Format {
	var names []Format
	for _, f := range formatTable {
		names = append(names, f.name)
	}
	return names
}

// About says in a few words which programs write the format.
func (f Format) About() string {
	if row := lookupFormat(f); row != nil {
		return row.about
	}
	return ""
}

// lookupFormat returns the format's row of the table, or nil.
func lookupFormat(f Format) *format {
	if i := slices.IndexFunc(formatTable, func(row format) bool { return row.name == f }); i >= 0 {
		return &formatTable[i]
	}
	return nil
}

// FormatNames lists the names of all formats for messages.
func FormatNames() string {
	var names []string
	for _, f := range formatTable {
		names = append(names, string(f.name))
	}
	return strings.Join(names, ", ")
}

// Value is the value of a field in a line.
type Value struct {
	Text []byte // valid until the next line is read
	Err  error  // ErrNoField, or the reason why the value is no text or an ip is no address
}

// Spent is the cost of a call in a line of [Usage]: the tokens that were reserved when it began, and the tokens that it
// had used when it ended, both as decimals.
type Spent struct {
	Reserved, Used []byte
	End            int64 // time of the end, in microseconds since the epoch; 0: unknown
}

// Record is a parsed line.
type Record struct {
	At      int64   // microseconds since the epoch
	Count   int     // number of requests in the line; 0: Skip says why there are none
	Values  []Value // values of the fields passed to New, in their order; the next Read overwrites them
	Spent   Spent   // only in Usage
	Skip    string  // why the line is no request
	Foreign bool    // another program or the log itself wrote the line: it is no evidence for the format
}

// Reader reads the lines of one log, in order.
type Reader interface {
	// Read reads a line. An error says why the line does not have the format; it is a [law.ErrInvalid] if the whole
	// log lacks one of the fields.
	Read(line []byte) (Record, error)
	// Notes returns remarks on the log, for people. Call it after the last line.
	Notes() []string
}

// Config adjusts the readers of some formats.
type Config struct {
	Year     int       // SSHD: year of the first line, if its time has none; 0: guessed from Changed
	Changed  time.Time // when the log was last written to
	Attempts bool      // SSHD: count attempts, not lines
	Cost     string    // Usage: the field with the reserved tokens; empty: the usual names. Other formats ignore it
	Settle   string    // Usage: the field with the tokens used in the end; empty: the usual names

	// JSON, formats within JSON, and CSV: the field with the time, and the format of its text for strptime, such as
	// "%d.%m.%Y %H:%M:%S", in UTC if it has no zone. Empty: the usual names, and any of the usual formats.
	Time, TimeFormat string

	// Proxies are the site's own proxies: in a list of addresses, the last address that is no proxy is the client.
	// Nil: private and loopback addresses.
	Proxies httpkey.Proxies

	parseTime func([]byte) (us int64, ok bool)
}

// fractionRemover removes fractions of seconds from a format for strptime: package time reads fractions by itself.
var fractionRemover = strings.NewReplacer(".%f", "", ",%f", "", ".%L", "", ",%L", "")

// complete returns the configuration with defaults and parseTime. It is an error if TimeFormat is invalid.
func (cfg Config) complete() (Config, error) {
	if cfg.Proxies == nil {
		cfg.Proxies = privateNetworks
	}
	cfg.parseTime = parseAnyTime
	if cfg.TimeFormat != "" {
		layout, err := strftime.Layout(fractionRemover.Replace(cfg.TimeFormat))
		if err != nil {
			return cfg, law.Invalid("time_format", "%.60q: %v", cfg.TimeFormat, err)
		}
		cfg.parseTime = func(text []byte) (int64, bool) {
			t, err := time.Parse(layout, string(text))
			us := t.UnixMicro()
			return us, err == nil && us > 0 && us <= MaxTime
		}
	}
	return cfg, nil
}

// New returns a reader of the fields. It is an error if the format does not have one of them, or does not fit cfg.
func New(f Format, fields []string, cfg Config) (Reader, error) {
	row := lookupFormat(f)
	if row == nil {
		return nil, law.Invalid("format", "%q is not one of %s", string(f), FormatNames())
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	available := strings.Fields(row.fields)
	if (len(available) > 0 || f == W3C) && cfg.Time+cfg.TimeFormat != "" {
		return nil, law.Invalid("time", "a log of the format %s has its time in one place; JSON and CSV have not", f)
	}
	for _, field := range fields {
		if len(available) > 0 && !slices.Contains(available, field) {
			return nil, noField(f, field, available)
		}
	}
	return &containerLog{Reader: row.open(row, fields, cfg)}, nil
}

// noField returns the error about a field that a format or a log does not have, with the fields that it has.
func noField(f Format, field string, available []string) error {
	last := len(available) - 1
	list := strings.Join(available, " and ")
	if last > 0 {
		list = strings.Join(available[:last], ", ") + " and " + available[last]
	}
	return law.Invalid("field", "a log of the format %s has no %q, but %s", f, field, list)
}

// ErrNoField is the Err of a Value whose field is not in the line, which is valid otherwise.
var ErrNoField = errors.New("the field is not there")
