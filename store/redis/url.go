package redis

import (
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

// parseURL takes redis://user:password@host:port,host:port/db?option=value
// apart, or rediss:// for TLS.
func parseURL(raw string) (o *rueidis.ClientOption, prefix string, err error) {
	bad := func(format string, args ...any) (*rueidis.ClientOption, string, error) {
		return nil, "", law.Invalid("URL", format, args...)
	}
	u, err := store.ParseURL(raw)
	if err != nil {
		return nil, "", err
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return bad("it does not begin with redis:// or rediss://")
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
			return bad("the database is not a number")
		}
	}
	for name := range u.Options { // of which half a password may be another, and its name be shown
		switch strings.ToLower(name) {
		case "user", "username", "password", "pass", "pwd", "auth":
			return bad("user and password are no options; they stand before the host")
		}
	}
	port := "6379"
	var files tlsconf.Files
	var insecure bool
	secure := u.Scheme == "rediss"
	for name, values := range u.Options {
		value := values[len(values)-1]
		switch name {
		case "prefix":
			prefix = value
		case "master":
			if value == "" {
				return bad("master is empty")
			}
			o.Sentinel.MasterSet, port = value, "26379"
		case "tls", "insecure":
			yes, err := strconv.ParseBool(value)
			switch {
			case err != nil:
				return bad("%s is %q, want true or false", name, value)
			case name == "tls":
				secure = secure || yes
			default:
				insecure = yes
			}
		case "ca":
			files.CA = value
		case "cert":
			files.Cert = value
		case "key":
			files.Key = value
		default:
			return bad("option %q is not known; known are prefix, master, tls, ca, cert, key and insecure", name)
		}
	}
	if len(u.Hosts) == 0 {
		u.Hosts = []string{"127.0.0.1"}
	}
	for _, host := range u.Hosts {
		at, err := url.Parse("//" + host)
		if err != nil {
			return bad("host %q is not a name or address with a port", host)
		}
		p := at.Port()
		if p == "" {
			p = port
		}
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return bad("host %q: the port is not a number from 1 to 65535", host)
		}
		o.InitAddress = append(o.InitAddress, net.JoinHostPort(at.Hostname(), p))
	}
	if o.Sentinel.MasterSet != "" {
		o.Sentinel.Dialer, o.Sentinel.ClientName = o.Dialer, o.ClientName
		// A demoted primary closes no connection, and the message about it may
		// get lost.
		o.Sentinel.TopologyRefreshInterval = 5 * time.Second
	}
	if secure {
		if (files.Cert == "") != (files.Key == "") {
			return bad("cert and key need each other")
		}
		if o.TLSConfig, err = files.Config(""); err != nil {
			return nil, "", fmt.Errorf("%w: URL: %w", store.ErrSetup, err)
		}
		o.TLSConfig.InsecureSkipVerify = insecure
		o.Sentinel.TLSConfig = o.TLSConfig
	} else if files != (tlsconf.Files{}) || insecure {
		return bad("ca, cert, key and insecure are for rediss://")
	}
	return o, prefix, nil
}
