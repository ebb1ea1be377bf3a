package mysql

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// DefaultDatabase is the database of a URL that names none, DefaultConns how
// many connections a node may have at once.
const (
	DefaultDatabase = "headgate"
	DefaultConns    = 16
)

// target is a parsed URL.
type target struct {
	configs   []*driver1.Config // one for each host
	conns     int               // that each may have at once
	collation string            // of the connections; empty: the server's default
}

// parseURL takes mysql://user:password@host:port,host:port/database?option=value
// apart. Options are those of go-sql-driver/mysql, and pool_max_conns; those that
// the text of a batch depends on are ours.
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
	if u.Path == "" {
		u.Path = DefaultDatabase
	}
	for name := range u.Options { // what is not known would be sent as a variable, and shown in the server's error
		if credentials.MatchString(name) {
			return bad("user and password are no options; they stand before the host")
		}
	}
	t := &target{conns: DefaultConns}
	if err := t.take(u.Options); err != nil {
		return bad("%v", err)
	}
	secure, err := takeTLS(u.Options)
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
		c, err := driver1.ParseDSN("tcp(" + host + ")/?" + query)
		if err != nil {
			return bad("%v", err)
		}
		c.User, c.Passwd, c.DBName = u.User, u.Password, u.Path
		c.MultiStatements, c.InterpolateParams, c.ClientFoundRows = true, false, false
		c.Logger = &driver1.NopLogger{} // what goes wrong is in the errors
		if c.Timeout == 0 {
			c.Timeout = 5 * time.Second
		}
		secure(c)
		t.configs = append(t.configs, c)
	}
	return t, nil
}

// credentials are the names of options that are mistaken for users and passwords.
// The driver's own, such as allowCleartextPasswords, say what may be sent.
var credentials = regexp.MustCompile(`(?i)^(user(name)?|(|.*[^a-z])pass(w|wd|word|phrase)?|(|.*[^a-z])pwd)$`)

// take takes the options that are not the driver's. The character set is not to be
// chosen: see session.go.
func (t *target) take(options url.Values) (err error) {
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
			if !collations.MatchString(value) {
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

var collations = regexp.MustCompile(`^` + charset + `_[a-z0-9_]+$`)
