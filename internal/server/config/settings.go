package config

import (
	"os"
	"strings"

	"github.com/headgate/headgate"
)

// Setting is a value that a flag, a variable or the file can set, such as --wait-store, HEADGATE_WAIT_STORE and
// wait_store. The first of them that is set counts, in this order, then the default.
type Setting struct {
	Name    string // name in the file
	Help    string // one line; a word in backquotes names the kind of the value
	Default string // for help texts; empty: none
	NotFile bool   // the file cannot set it
	Switch  bool   // true or false; a flag may have no value
	Number  bool   // a number, which may have a fraction
	List    bool   // several values, separated by commas; a flag may be repeated, the file may have a list
}

// The settings.
var (
	File   = Setting{Name: "config", Help: "config `file`; may be several", NotFile: true, List: true}
	Server = Setting{Name: "server", Help: "`URL` of a server to ask instead of a store, of http, https, grpc or " +
		"grpcs; or unix:PATH", NotFile: true}
	Store = Setting{Name: "store", Help: "`URL` of the store; one with a password belongs in the variable, " +
		"since all users of the machine can see flags", Default: DefaultStore}
	Token = Setting{Name: "token", Help: "`token` to show to the server; it belongs in the variable, since all " +
		"users of the machine can see flags", NotFile: true}
	HTTP = Setting{Name: "http", Help: "`address` to listen on, or unix:PATH", Default: DefaultHTTP}
	GRPC = Setting{Name: "grpc", Help: "`address` to listen on for gRPC too, or unix:PATH"}
	RESP = Setting{
		Name: "resp",
		Help: "`address` to listen on for clients of Redis too, which send CL.THROTTLE, or unix:PATH",
	}
	Envoy = Setting{
		Name: "envoy",
		Help: "`path` of limits for Envoy, in the format of envoyproxy/ratelimit: a file, or a folder of files",
	}
	EnvoyHeaders = Setting{
		Name: "envoy_headers", Help: "`kind` of headers that Envoy adds to responses: x-ratelimit or draft", List: true,
	}
	EnvoyMergeDomains = Setting{
		Name: "envoy_merge_domains", Switch: true,
		Help: "let several files, or resources of the xDS server, have the same domain",
	}
	XDS = Setting{
		Name: "xds", Help: "`address` of an xDS server that has limits for Envoy, such as envoy-gateway:18001",
	}
	XDSNode = Setting{Name: "xds_node", Help: "`id` to show to the xDS server", Default: "envoy-ratelimit"}
	XDSCA   = Setting{Name: "xds_ca", Help: "PEM `file` with the authorities of the xDS server's certificate"}
	XDSCert = Setting{Name: "xds_cert", Help: "PEM `file` with the certificate to show to the xDS server"}
	XDSKey  = Setting{Name: "xds_key", Help: "PEM `file` with the key of that certificate"}
	Admin   = Setting{
		Name: "admin", Help: "`address` to listen on for admin actions too, which --http does not serve then",
	}
	Metrics = Setting{
		Name: "metrics", Help: "`address` that tells how the server is (/livez, /readyz, /metrics), without tokens",
	}
	Tokens = Setting{Name: "tokens", Help: "`file` with the callers that are let in, as headgate token new makes it"}
	Open   = Setting{
		Name: "open", Switch: true,
		Help: "let everybody who reaches an address that other machines reach take, reset and block there",
	}
	TLSCert     = Setting{Name: "tls_cert", Help: "PEM `file` with the server's certificate"}
	TLSKey      = Setting{Name: "tls_key", Help: "PEM `file` with the key of the certificate"}
	TLSClientCA = Setting{
		Name: "tls_client_ca",
		Help: "PEM `file` with the authorities of clients' certificates, which are needed then, or a token",
	}
	WaitStore = Setting{
		Name: "wait_store", Default: "no limit",
		Help: "for how `long` to wait at the start for a store that is away, such as 30s; 0 tries once",
	}
	Deadline = Setting{
		Name: "deadline", Default: "1.5s",
		Help: "how `long` a request may wait for the store, where its limits do not say; then their policy answers",
	}
	Host = Setting{Name: "host", Help: "`name` by which a server on a loopback address may be asked, beside " +
		"localhost and IP addresses; if there is one, other names are refused on other addresses too", List: true}

	Proxy = Setting{
		Name: "proxy", Default: "loopback addresses", List: true,
		Help: "`network` such as 10.0.0.0/8, or address, of proxies whose X-Forwarded-* count in forward " +
			"authentication; those on a Unix socket always do; none lists none",
	}
	AuthHeaders = Setting{
		Name: "auth_headers", Default: "draft", List: true,
		Help: "`kind` of headers that forward authentication answers with: draft, x-ratelimit, x-ratelimit-epoch or " +
			"x-should-retry",
	}

	LogFormat = Setting{Name: "log_format", Help: "`format` of the log: text, or json", Default: "text"}
	LogLevel  = Setting{
		Name: "log_level", Default: "info",
		Help: "`level` from which on something is logged: debug, info, warn or error",
	}
	LogRefused = Setting{
		Name: "log_refused", Number: true, Default: "0",
		Help: "`share` of the refusals and failures that are logged, from 0 to 1",
	}
	LogAdmitted = Setting{
		Name: "log_admitted", Number: true, Default: "0",
		Help: "`share` of the admissions that are logged, from 0 to 1",
	}

	NotifyURL = Setting{
		Name: "notify_url", Help: "`URL` to which an event is posted when a charge crosses a threshold of notify",
	}
	NotifySecret = Setting{
		Name: "notify_secret",
		Help: "`file` with the secret that signs these events: whsec_ and the output of openssl rand -base64 32",
	}

	NotationMaxPeriod = Setting{
		Name: "notation_max_period", Default: "32d",
		Help: "longest `time` for which a charge by a notation in a request may count or block, such as 7d",
	}
	MaxNotations = Setting{
		Name: "max_notations",
		Help: "`number` of different notations that requests may use at a time", Default: "1000",
	}

	MaxConnections = Setting{
		Name: "max_connections", Default: "10000, or fewer where few files may be open",
		Help: "`number` of connections that may be open; one more closes the one that has been idle for longest",
	}
	MaxRequests = Setting{
		Name: "max_requests",
		Help: "`number` of requests that may be decided at a time; more are answered with 503", Default: "4096",
	}
	MaxBuffered = Setting{
		Name: "max_buffered",
		Help: "`size` of what requests in flight may hold together, but for small ones, such as 64MiB; more are " +
			"answered with 503", Default: "128MiB",
	}
)

// Settings has all settings in the order of the documentation.
var Settings = []Setting{
	Store, HTTP, GRPC, RESP, Envoy, EnvoyHeaders, EnvoyMergeDomains, XDS, XDSNode, XDSCA, XDSCert, XDSKey,
	Admin, Metrics, Tokens, Open, TLSCert, TLSKey, TLSClientCA, WaitStore, Deadline,
	NotationMaxPeriod, MaxNotations, Host, Proxy, AuthHeaders, MaxConnections, MaxRequests,
	MaxBuffered, LogFormat, LogLevel, LogRefused, LogAdmitted, NotifyURL, NotifySecret,
	File, Server, Token,
}

// Flag returns the setting's name on the command line, without the dashes.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Name, "_", "-") }

// Variable returns the setting's name in the environment.
func (s Setting) Variable() string { return "HEADGATE_" + strings.ToUpper(s.Name) }

// Usage returns the help text of the setting's flag.
func (s Setting) Usage() string {
	if s.Default == "" {
		return s.Help + " (" + s.Variable() + ")"
	}
	return s.Help + " (" + s.Variable() + "; default " + s.Default + ")"
}

// Flags looks up a flag: its value, and whether it was given.
type Flags func(name string) (value string, given bool)

// SettingValue is the value of a setting, with its source.
type SettingValue struct {
	Value string // the default if the setting is not set
	By    string // the flag, the variable or the file; empty: the setting is not set
}

// source names the flag, the variable or the place in the file that set the setting.
func (s SettingValue) source(setting Setting) string {
	if strings.HasPrefix(s.By, "--") || s.By == setting.Variable() {
		return s.By
	}
	return s.By + ": " + setting.Name
}

// Get returns the value of a setting. A flag or variable that is given and empty is an error and not the default, since
// it is mostly a variable that should have been set.
func (c *Config) Get(s Setting, flags Flags) (SettingValue, error) {
	said := SettingValue{Value: s.Default}
	if s.Name == Store.Name {
		said.Value = defaultStore()
	}
	if value, ok := flags(s.Flag()); ok {
		said = SettingValue{value, "--" + s.Flag()}
	} else if value, ok := os.LookupEnv(s.Variable()); ok {
		said = SettingValue{value, s.Variable()}
	} else if value, ok := c.settings[s.Name]; ok {
		said = SettingValue{value, c.File}
	}
	if said.By != "" && said.Value == "" {
		what := "leave it out"
		if s.Default != "" {
			what += " for the default, " + s.Default
		}
		return said, headgate.Invalid(said.By, "is empty; %s", what)
	}
	return said, nil
}
