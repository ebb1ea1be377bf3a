package mysql

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

// DefaultDatabase is the database of a URL that names none, DefaultConns how
// many connections a node may have at once.
const (
	DefaultDatabase = "headgate"
	DefaultConns    = 16
)

// target is what a URL names.
type target struct {
	configs   []*driver1.Config // one for each host
	conns     int               // that each may have at once
	collation string            // of the connections; empty: the server's default
}

// fixed are options that have nothing to do with what a user may want.
var fixed = []string{"interpolateParams", "multiStatements", "clientFoundRows"}

// parseURL takes mysql://user:password@host:port,host:port/database?option=value
// apart. Options are those of go-sql-driver/mysql, and pool_max_conns; those that
// the text of a batch depends on are ours.
func parseURL(raw string) (*target, error) {
	bad := func(format string, args ...any) (*target, error) {
		return nil, fmt.Errorf("%w: URL: "+format, append([]any{store.ErrInvalid}, args...)...)
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "mysql" && scheme != "mariadb" {
		return bad("it does not begin with mysql:// or mariadb://")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, database, _ := strings.Cut(rest, "/")
	user, password := "", ""
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		name, secret, _ := strings.Cut(authority[:i], ":")
		var err1, err2 error
		user, err1 = url.PathUnescape(name)
		password, err2 = url.PathUnescape(secret)
		if err1 != nil || err2 != nil {
			return bad("user or password have a %% that is not followed by two hexadecimal digits")
		}
		authority = authority[i+1:]
	}
	database, err := url.PathUnescape(database)
	if err != nil || strings.Contains(database, "/") {
		return bad("the database's name is not one")
	}
	t := &target{conns: DefaultConns}
	options, err := t.options(query)
	if err != nil {
		return bad("%w", err)
	}
	for host := range strings.SplitSeq(authority, ",") {
		if host == "" {
			host = "127.0.0.1"
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
		}
		c, err := driver1.ParseDSN("tcp(" + host + ")/?" + options)
		if err != nil {
			return bad("%v", err)
		}
		c.User, c.Passwd, c.DBName = user, password, cmp.Or(database, DefaultDatabase)
		c.MultiStatements, c.InterpolateParams, c.ClientFoundRows = true, false, false
		c.Logger = &driver1.NopLogger{} // what goes wrong is in the errors
		if c.Timeout == 0 {
			c.Timeout = 5 * time.Second
		}
		t.configs = append(t.configs, c)
	}
	return t, nil
}

// options takes from a query what is not the driver's, and returns the rest. The
// character set is not to be chosen: see session.go.
func (t *target) options(query string) (rest string, err error) {
	var others []string
	for pair := range strings.SplitSeq(query, "&") {
		escaped, raw, _ := strings.Cut(pair, "=")
		name, err1 := url.QueryUnescape(escaped)
		value, err2 := url.QueryUnescape(raw)
		if err := errors.Join(err1, err2); err != nil {
			return "", err
		}
		switch lower := strings.ToLower(name); {
		case pair == "" || slices.Contains(fixed, name):
		case name == "pool_max_conns":
			if t.conns, err = strconv.Atoi(value); err != nil || t.conns < 1 {
				return "", fmt.Errorf("pool_max_conns is %q; it must be a number above 0", value)
			}
		case lower == "charset" || strings.Contains(lower, "character_set_"):
			if value != charset {
				return "", fmt.Errorf("%s is %q; connections are always %s: leave it out", name, value, charset)
			}
		case strings.Contains(lower, "collation"):
			if !collations.MatchString(value) {
				return "", fmt.Errorf("%s is %q; connections are always %s: leave it out, or name a collation that begins with %[3]s_", name, value, charset)
			}
			t.collation = value
		default:
			others = append(others, pair)
		}
	}
	return strings.Join(others, "&"), nil
}

var collations = regexp.MustCompile(`^` + charset + `_[a-z0-9_]+$`)
