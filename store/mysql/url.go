package mysql

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// DefaultDatabase is the database of a URL that names none. DefaultConns is how many connections each node may have at
// once, unless the URL has pool_max_conns.
const (
	DefaultDatabase = "headgate"
	DefaultConns    = 16
)

// target is a parsed URL.
type target struct {
	configs   []*mysqldriver.Config // one for each host
	conns     int                   // how many connections each host may have at once
	collation string                // of the connections; empty: the server's default
}

// parseURL parses mysql://user:password@host:port,host:port/database?option=value. Options are pool_max_conns, ssl-ca,
// ssl-cert, ssl-key and the driver's. It overrides or refuses those on which the text of a batch depends.
func parseURL(raw string) (*target, error) {
	bad := func(format string, args ...any) (*target, error) {
		return nil, law.Invalid("URL", format, args...)
	}
	u, err := store.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return bad("it does not begin with mysql:// or mariadb://")
	}
	if strings.Contains(u.Path, "/") {
		return bad("the database's name is not one")
	}
	for name := range u.Options { // an unknown option would be sent as a variable, and the server's error would show it
		if credentialOption.MatchString(name) {
			return bad("user and password are no options; they stand before the host")
		}
	}
	t := &target{conns: DefaultConns}
	if err := t.takeOptions(u.Options); err != nil {
		return bad("%v", err)
	}
	setTLS, err := takeTLS(u.Options)
	if err != nil {
		return nil, err
	}
	query := u.Options.Encode()
	if len(u.Hosts) == 0 {
		u.Hosts = []string{"127.0.0.1"}
	}
	for _, host := range u.Hosts {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
		}
		c, err := mysqldriver.ParseDSN("tcp(" + host + ")/?" + query)
		if err != nil {
			return bad("%v", err)
		}
		c.User, c.Passwd, c.DBName = u.User, u.Password, cmp.Or(u.Path, DefaultDatabase)
		c.MultiStatements, c.InterpolateParams, c.ClientFoundRows = true, false, false
		c.Logger = &mysqldriver.NopLogger{} // what goes wrong is in the errors
		c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
		setTLS(c)
		t.configs = append(t.configs, c)
	}
	return t, nil
}

// credentialOption matches options that somebody takes for the user or the password. It does not match the driver's own
// options, such as allowCleartextPasswords.
var credentialOption = regexp.MustCompile(`(?i)^(user(name)?|(|.*[^a-z])pass(w|wd|word|phrase)?|(|.*[^a-z])pwd)$`)

// takeOptions removes the options pool_max_conns, character sets and collations. It sets conns and collation; another
// character set than utf8mb4 is an error: see session.go.
func (t *target) takeOptions(options url.Values) (err error) {
	for name, values := range options {
		value, lower := values[len(values)-1], strings.ToLower(name)
		switch {
		case name == "pool_max_conns":
			if t.conns, err = strconv.Atoi(value); err != nil || t.conns < 1 {
				return fmt.Errorf("pool_max_conns is %q; it must be a number above 0", value)
			}
		case lower == "charset" || strings.Contains(lower, "character_set_"):
			if value != charset {
				return fmt.Errorf("%s is %q; connections are always %s: leave it out", name, value, charset)
			}
		case strings.Contains(lower, "collation"):
			if !collationPattern.MatchString(value) {
				return fmt.Errorf("%s is %q; connections are always %s: leave it out, or name a collation that "+
					"begins with %[3]s_", name, value, charset)
			}
			t.collation = value
		default:
			continue
		}
		delete(options, name)
	}
	return nil
}

var collationPattern = regexp.MustCompile(`^` + charset + `_[a-z0-9_]+$`)
