package mysql

import (
	"fmt"
	"net"
	"net/url"
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

// parseURL takes mysql://user:password@host:port,host:port/database?option=value
// apart: one driver configuration for each host, and how many connections each
// may have. Options are those of go-sql-driver/mysql, and pool_max_conns; those
// that the text of a batch depends on are ours.
func parseURL(raw string) (list []*driver1.Config, conns int, err error) {
	bad := func(format string, args ...any) ([]*driver1.Config, int, error) {
		return nil, 0, fmt.Errorf("%w: URL: "+format, append([]any{store.ErrInvalid}, args...)...)
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
	if database, err = url.PathUnescape(database); err != nil || strings.Contains(database, "/") {
		return bad("the database's name is not one")
	}
	if database == "" {
		database = DefaultDatabase
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return bad("%v", err)
	}
	conns = DefaultConns
	if most := options.Get("pool_max_conns"); most != "" {
		if conns, err = strconv.Atoi(most); err != nil || conns < 1 {
			return bad("pool_max_conns is %q; it must be a number above 0", most)
		}
		options.Del("pool_max_conns")
	}
	secure, err := takeTLS(options)
	if err != nil {
		return nil, 0, err
	}
	query = options.Encode()
	for _, host := range strings.Split(authority, ",") {
		if host == "" {
			host = "127.0.0.1"
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
		}
		c, err := driver1.ParseDSN("tcp(" + host + ")/?" + query)
		if err != nil {
			return bad("%v", err)
		}
		c.User, c.Passwd, c.DBName = user, password, database
		c.MultiStatements, c.InterpolateParams, c.ClientFoundRows = true, true, false
		c.Logger = &driver1.NopLogger{} // what goes wrong is in the errors
		if c.Timeout == 0 {
			c.Timeout = 5 * time.Second
		}
		secure(c)
		list = append(list, c)
	}
	return list, conns, nil
}
