package redis

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/tlsconf"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// badURL returns the error of a wrong URL.
func badURL(format string, args ...any) error { return law.Invalid("URL", format, args...) }

// parseURL parses redis://user:password@host:port,host:port/db?option=value, or rediss:// for TLS.
func parseURL(raw string) (o *rueidis.ClientOption, prefix string, err error) {
	u, err := store.ParseURL(raw)
	if err != nil {
		return nil, "", err
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, "", badURL("it does not begin with redis:// or rediss://")
	}
	o = &rueidis.ClientOption{
		// A charge whose reply got lost must not be sent again.
		DisableRetry: true, DisableCache: true, ClientName: "headgate",
		Username: u.User, Password: u.Password,
		Dialer:           net.Dialer{Timeout: 2 * time.Second, KeepAlive: time.Second},
		ConnWriteTimeout: 3 * time.Second,
	}
	if u.Path != "" {
		if o.SelectDB, err = strconv.Atoi(u.Path); err != nil || o.SelectDB < 0 {
			return nil, "", badURL("the database is not a number")
		}
	}
	x := options{secure: u.Scheme == "rediss"}
	if err := x.parse(u.Options); err != nil {
		return nil, "", err
	}
	port := "6379"
	if x.master != "" {
		port = "26379"
		o.Sentinel.MasterSet, o.Sentinel.Dialer, o.Sentinel.ClientName = x.master, o.Dialer, o.ClientName
		// A demoted primary closes no connection, and the message about it may get lost.
		o.Sentinel.TopologyRefreshInterval = 5 * time.Second
	}
	if o.InitAddress, err = addresses(u.Hosts, port); err != nil {
		return nil, "", err
	}
	if o.TLSConfig, err = x.tls(); err != nil {
		return nil, "", err
	}
	if x.master != "" {
		o.Sentinel.TLSConfig = o.TLSConfig
	}
	return o, x.prefix, nil
}

// options are the options of a URL.
type options struct {
	prefix, master   string
	secure, insecure bool // use TLS; do not verify the certificate
	files            tlsconf.Files
}

// parse sets the options from the lists of values in a URL. The last value of an option counts.
func (x *options) parse(list map[string][]string) (err error) {
	for name := range list { // before all else, or an error might show part of a password
		switch strings.ToLower(name) {
		case "user", "username", "password", "pass", "pwd", "auth":
			return badURL("user and password are no options; they stand before the host")
		}
	}
	flag := func(name, value string) bool {
		enabled, parseErr := strconv.ParseBool(value)
		if parseErr != nil {
			err = badURL("%s is %q, want true or false", name, value)
		}
		return enabled
	}
	texts := map[string]*string{
		"prefix": &x.prefix, "master": &x.master, "ca": &x.files.CA, "cert": &x.files.Cert, "key": &x.files.Key,
	}
	for name, values := range list {
		value, target := values[len(values)-1], texts[name]
		switch {
		case name == "master" && value == "":
			return badURL("master is empty")
		case target != nil:
			*target = value
		case name == "tls":
			x.secure = flag(name, value) || x.secure
		case name == "insecure":
			x.insecure = flag(name, value)
		default:
			return badURL("option %q is not known; known are prefix, master, tls, ca, cert, key and insecure", name)
		}
	}
	return err
}

// addresses returns hosts with their ports, or with port if they have none. No host stands for this machine.
func addresses(hosts []string, port string) (list []string, err error) {
	if len(hosts) == 0 {
		hosts = []string{"127.0.0.1"}
	}
	for _, host := range hosts {
		parsed, err := url.Parse("//" + host)
		if err != nil {
			return nil, badURL("host %q is not a name or address with a port", host)
		}
		p := cmp.Or(parsed.Port(), port)
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, badURL("host %q: the port is not a number from 1 to 65535", host)
		}
		list = append(list, net.JoinHostPort(parsed.Hostname(), p))
	}
	return list, nil
}

// tls returns the TLS config; nil: no TLS.
func (x *options) tls() (*tls.Config, error) {
	switch {
	case !x.secure && (x.files != (tlsconf.Files{}) || x.insecure):
		return nil, badURL("ca, cert, key and insecure are for rediss://")
	case !x.secure:
		return nil, nil
	case (x.files.Cert == "") != (x.files.Key == ""):
		return nil, badURL("cert and key need each other")
	}
	c, err := x.files.Config("")
	if err != nil {
		return nil, fmt.Errorf("%w: URL: %w", store.ErrSetup, err)
	}
	c.InsecureSkipVerify = x.insecure
	return c, nil
}
