package mysql

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

// DefaultDatabase is the database of a URL that names none.
const DefaultDatabase = "headgate"

// parseURL takes mysql://user:password@host:port,host:port/database?option=value
// apart: one driver configuration for each host. Options are those of
// go-sql-driver/mysql; those that the text of a batch depends on are ours.
func parseURL(raw string) ([]*driver1.Config, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: URL: "+format, append([]any{store.ErrSetup}, args...)...)
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "mysql" && scheme != "mariadb" {
		return nil, bad("it does not begin with mysql:// or mariadb://")
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
			return nil, bad("user or password have a %% that is not followed by two hexadecimal digits")
		}
		authority = authority[i+1:]
	}
	database, err := url.PathUnescape(database)
	if err != nil || strings.Contains(database, "/") {
		return nil, bad("the database's name is not one")
	}
	if database == "" {
		database = DefaultDatabase
	}
	var list []*driver1.Config
	for _, host := range strings.Split(authority, ",") {
		if host == "" {
			host = "127.0.0.1"
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
		}
		c, err := driver1.ParseDSN("tcp(" + host + ")/?" + query)
		if err != nil {
			return nil, bad("%v", err)
		}
		c.User, c.Passwd, c.DBName = user, password, database
		c.MultiStatements, c.InterpolateParams, c.ClientFoundRows = true, true, false
		if c.Timeout == 0 {
			c.Timeout = 5 * time.Second
		}
		list = append(list, c)
	}
	return list, nil
}
