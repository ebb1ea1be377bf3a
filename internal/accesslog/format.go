// Package accesslog reads the logs of web servers, proxies and load balancers, and recognizes which of the
// formats that it knows a log has.
//
// A line is read as what it is or not at all: Read returns an error that says why a line is
// not of the format, and never guesses a value.
package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"

	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/law"
)

// Format is the way in which a log writes its lines.
type Format string

// The formats.
const (
	// TraefikCLF is Traefik's default: Combined, then the number of requests, the router, the
	// server and the milliseconds.
	TraefikCLF Format = "traefik"
	// Combined is the access log of Apache and nginx with referer and agent.
	Combined Format = "combined"
	// Common is the access log without them; what follows is not looked at.
	Common Format = "common"
	// VHost is Common after the name and the port of a virtual host, as Debian's
	// Apache writes it: "example.com:80 192.0.2.1 - - [...". The port may be missing.
	// What follows the bytes is not looked at.
	VHost Format = "vhost_combined"
	// HAProxy is HAProxy's HTTP log (option httplog), with the beginning of a syslog line or without. Its
	// times have no zone and are taken as UTC.
	HAProxy Format = "haproxy"
	// ALB is the access log of AWS's Application Load Balancer, and of the Classic one, which has no type in
	// front. The time is that of the response, the only one that both write.
	ALB Format = "alb"
	// Envoy is the default text of Envoy, where ip is from X-Forwarded-For, and of Istio, where it is the downstream's
	// remote address. Lines of Envoy itself, of Istio's agent and of TCP connections are skipped.
	Envoy Format = "envoy"
	// W3C is the extended log file format that IIS writes: the columns are those that the latest
	// #Fields names. Times are UTC.
	W3C Format = "iis"
	// Caddy is Caddy's JSON; lines of its other loggers are skipped.
	Caddy Format = "caddy"
	// TraefikJSON is Traefik's JSON. The time is StartUTC, or else time.
	TraefikJSON Format = "traefik_json"
	// Usage is JSON with the tokens of calls of language models; see [Spent].
	Usage Format = "usage"
	// JSON is one object on each line. Its time is the first of ts, time,
	// timestamp, @timestamp, at, start_time (Istio), EdgeStartTimestamp (Cloudflare) and
	// __REALTIME_TIMESTAMP (systemd): RFC 3339, or since the epoch in seconds,
	// milliseconds or finer. A field is a path such as request.ip or
	// headers.Host.0; the plain fields are also found under the names
	// that nginx and others use.
	JSON Format = "json"
	// CSV has a header, whose columns are the fields, and a comma, semicolon or tab between them. One of the
	// columns is called ts, time, timestamp, @timestamp, datetime, date or at.
	CSV Format = "csv"
	// SSHD is the syslog of an SSH server. Each line "Failed password", "Failed
	// keyboard-interactive" or "Invalid user" is a request, by ip or user; other lines are skipped.
	// With Config.Attempts, the first password that fails for an invalid user
	// is one attempt with the line that announced the user, and "message
	// repeated 5 times" is five. The times are taken as UTC.
	SSHD Format = "sshd"
)

// format is a row of the table of formats.
type format struct {
	name   Format
	about  string // for help texts
	fields string
	open   func(*format, []string, Config) Reader
	within Format // a format that reads these lines too, but sees less in them
}

// table has all formats in the order in which they are tried. A format without fields has those that its lines
// name.
var table = []format{
	{
		TraefikCLF, "Traefik's common log format", commonFields + " referer agent backend server", openCLF,
		Combined,
	},
	{Combined, "nginx and Apache, with referer and agent", commonFields + " referer agent", openCLF, Common},
	{Common, "Apache's common log format", commonFields, openCLF, ""},
	{VHost, "Apache and nginx, after the name of a virtual host", commonFields + " host", openCLF, ""},
	{HAProxy, "HAProxy's HTTP log", "ip method path status bytes frontend backend server", openHAProxy, ""},
	{
		ALB, "AWS Application and Classic Load Balancer", "ip host method path status bytes agent server", openALB,
		"",
	},
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

// Formats returns the names of all formats, in the order in which they are tried.
func Formats() []Format {
	var names []Format
	for _, f := range table {
		names = append(names, f.name)
	}
	return names
}

// About says in a few words whose format it is.
func (f Format) About() string {
	if row := formatNamed(f); row != nil {
		return row.about
	}
	return ""
}

// formatNamed returns the row of the table, or nil.
func formatNamed(f Format) *format {
	if i := slices.IndexFunc(table, func(row format) bool { return row.name == f }); i >= 0 {
		return &table[i]
	}
	return nil
}

// Names lists the names of all formats for messages.
func Names() string {
	var names []string
	for _, f := range table {
		names = append(names, string(f.name))
	}
	return strings.Join(names, ", ")
}

// Value is the value of a field in a line.
type Value struct {
	Text []byte // good until the next line is read
	Err  error  // ErrNoField, or that the value cannot be a text, or an ip no address
}

// Spent is what a line of [Usage] says of the cost of a call: what was reserved for it when it began,
// what it came to in the end, both in decimals, and when that was.
type Spent struct {
	Reserved, Used []byte
	End            int64 // microseconds since the epoch; 0: the line does not say
}

// Record is a parsed line.
type Record struct {
	At      int64   // microseconds since the epoch
	Count   int     // how many requests it stands for; 0: none, and Skip says what it is
	Values  []Value // of the fields of New, in their order
	Spent   Spent   // of Usage
	Skip    string  // why it is no request
	Foreign bool    // it is another program's: that says nothing for the format
}

// Reader reads the lines of one log, in order.
type Reader interface {
	// Read reads a line. The error says why that cannot be done; it is a [law.ErrInvalid] if the whole log has
	// none of the fields.
	Read(line []byte) (Record, error)
	// Notes are what else one should know about the log, at its end.
	Notes() []string
}

// Config adjusts the readers of some formats.
type Config struct {
	Year     int       // SSHD: of the first line, if it writes none; 0: by Changed
	Changed  time.Time // when the log was last written to
	Attempts bool      // SSHD: count attempts, not lines
	Cost     string    // Usage: the field with what was reserved; empty: by its usual names. Others ignore it
	Settle   string    // Usage: the field with what was used in the end; empty: found by its usual names

	// JSON and its relatives, and CSV: the field with the time, and the format of its text for strptime, such as
	// "%d.%m.%Y %H:%M:%S", in UTC if it has no zone. Empty: the usual names, and any of the usual forms.
	Time, TimeFormat string

	// Proxies are those that a list of addresses may end with: its last one that is no proxy is the client, as
	// for the middleware. Nil: private and loopback addresses.
	Proxies httpkey.Proxies

	parse func([]byte) (us int64, ok bool) // reads a time
}

// fractions takes those of seconds out of a format: package time reads them behind the seconds by itself.
var fractions = strings.NewReplacer(".%f", "", ",%f", "", ".%L", "", ",%L", "")

// complete checks what does not depend on the format, and adds what the readers need.
func (cfg Config) complete() (Config, error) {
	if cfg.Proxies == nil {
		cfg.Proxies = private
	}
	cfg.parse = anyTime
	if cfg.TimeFormat != "" {
		layout, err := strftime.Layout(fractions.Replace(cfg.TimeFormat))
		if err != nil {
			return cfg, law.Invalid("time_format", "%.60q: %v", cfg.TimeFormat, err)
		}
		cfg.parse = func(text []byte) (int64, bool) {
			t, err := time.Parse(layout, string(text))
			us := t.UnixMicro()
			return us, err == nil && us > 0 && us <= MaxTime
		}
	}
	return cfg, nil
}

// New returns a reader of the fields, or says why the format does not have them.
func New(f Format, fields []string, cfg Config) (Reader, error) {
	row := formatNamed(f)
	if row == nil {
		return nil, law.Invalid("format", "%q is not one of %s", string(f), Names())
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	has := strings.Fields(row.fields)
	if (len(has) > 0 || f == W3C) && cfg.Time+cfg.TimeFormat != "" {
		return nil, law.Invalid("time", "a log of the format %s has its time in one place; JSON and CSV have not", f)
	}
	for _, field := range fields {
		if len(has) > 0 && !slices.Contains(has, field) {
			return nil, noField(f, field, has)
		}
	}
	return &containerLog{Reader: row.open(row, fields, cfg)}, nil
}

// noField returns the error about a field that a format or a log does not have.
func noField(f Format, field string, has []string) error {
	return law.Invalid("field", "a log of the format %s has no %q, but %s", f, field, list(has))
}

// list writes "a, b and c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// ErrNoField is the Err of a Value: the line is as it should be and lacks the field.
var ErrNoField = errors.New("the field is not there")

// missing returns ErrNoField with a field.
func missing(field string) error { return fmt.Errorf("%w: %s", ErrNoField, field) }
