package mysql

import (
	"fmt"
	"net"
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
	u, err := store.ParseURL(raw)
	if err != nil {
		return nil, 0, err
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
	for _, name := range []string{"user", "password", "passwd", "pass", "pwd"} {
		if u.Options.Has(name) { // which would be sent as a variable, and shown in the server's error
			return bad("user and password are no options; they stand before the host")
		}
	}
	conns = DefaultConns
	if most := u.Options.Get("pool_max_conns"); most != "" {
		if conns, err = strconv.Atoi(most); err != nil || conns < 1 {
			return bad("pool_max_conns is %q; it must be a number above 0", most)
		}
	}
	u.Options.Del("pool_max_conns") // which the server knows nothing of
	secure, err := takeTLS(u.Options)
	if err != nil {
		return nil, 0, err
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
