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
	"github.com/headgate/headgate/store"
)

// parseURL takes redis://user:password@host:port,host:port/db?option=value
// apart, or rediss:// for TLS.
func parseURL(raw string) (o *rueidis.ClientOption, prefix string, err error) {
	bad := func(format string, args ...any) (*rueidis.ClientOption, string, error) {
		return nil, "", fmt.Errorf("%w: URL: "+format, append([]any{store.ErrInvalid}, args...)...)
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "redis" && scheme != "rediss" {
		return bad("it does not begin with redis:// or rediss://")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, db, _ := strings.Cut(rest, "/")
	o = &rueidis.ClientOption{
		// A charge whose reply got lost must not be sent again.
		DisableRetry: true, DisableCache: true, ClientName: "headgate",
		Dialer:           net.Dialer{Timeout: 2 * time.Second, KeepAlive: time.Second},
		ConnWriteTimeout: 3 * time.Second,
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		name, secret, _ := strings.Cut(authority[:i], ":")
		var err1, err2 error
		o.Username, err1 = url.PathUnescape(name)
		o.Password, err2 = url.PathUnescape(secret)
		if err1 != nil || err2 != nil {
			return bad("user or password have a %% that is not followed by two hexadecimal digits")
		}
		authority = authority[i+1:]
	}
	if db != "" {
		if o.SelectDB, err = strconv.Atoi(db); err != nil || o.SelectDB < 0 {
			return bad("the database is not a number")
		}
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return bad("%v", err)
	}
	port := "6379"
	var files tlsconf.Files
	var insecure bool
	secure := scheme == "rediss"
	for name, values := range options {
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
	if authority == "" {
		authority = "127.0.0.1"
	}
	for host := range strings.SplitSeq(authority, ",") {
		u, err := url.Parse("//" + host)
		if err != nil || u.Hostname() == "" || u.Host != host || strings.Contains(u.Hostname(), ":") && host[0] != '[' {
			return bad("host %q is not a name or address with a port", host)
		}
		p := u.Port()
		if p == "" {
			p = port
		}
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return bad("host %q: the port is not a number from 1 to 65535", host)
		}
		o.InitAddress = append(o.InitAddress, net.JoinHostPort(u.Hostname(), p))
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
