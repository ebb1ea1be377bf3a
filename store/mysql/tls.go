package mysql

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/internal/tlsconf"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// takeTLS removes the options that name certificates: ssl-ca, ssl-cert and ssl-key, the names that MariaDB and MySQL
// use too. set makes a configuration use the certificates, with a logger in which connectError finds the server's
// alert. Without such options set does nothing.
func takeTLS(options url.Values) (set func(*mysqldriver.Config), err error) {
	var files tlsconf.Files
	for name, file := range map[string]*string{"ssl-ca": &files.CA, "ssl-cert": &files.Cert, "ssl-key": &files.Key} {
		*file = options.Get(name)
		options.Del(name)
	}
	if files == (tlsconf.Files{}) {
		return func(*mysqldriver.Config) {}, nil
	}
	skipVerify := false
	switch mode := options.Get("tls"); mode {
	case "", "1", "true", "TRUE", "True":
	case "skip-verify":
		skipVerify = true
	default:
		return nil, law.Invalid("URL", "tls=%s does without certificates, and so has no use for ssl-ca, ssl-cert "+
			"and ssl-key", mode)
	}
	switch {
	case skipVerify && files.CA != "":
		return nil, law.Invalid("URL", "tls=skip-verify asks no authority, and so has no use for ssl-ca")
	case (files.Cert == "") != (files.Key == ""):
		return nil, law.Invalid("URL", "ssl-cert and ssl-key need each other")
	}
	c, err := files.Config("ssl-")
	if err != nil {
		return nil, fmt.Errorf("%w: URL: %w", store.ErrSetup, err)
	}
	c.InsecureSkipVerify = skipVerify
	return func(config *mysqldriver.Config) {
		config.TLS, config.Logger = c.Clone(), &alertLogger{}
		config.TLS.ServerName, _, _ = net.SplitHostPort(config.Addr)
	}, nil
}

// alertLogger is a logger for go-sql-driver that keeps the last TLS error, usually the alert of a server: the driver
// logs it, and returns only ErrInvalidConn.
type alertLogger struct{ lastAlert atomic.Pointer[error] }

// Print implements mysqldriver.Logger.
func (a *alertLogger) Print(values ...any) {
	for _, v := range values {
		if err, ok := v.(error); ok && tlsconf.IsHandshakeError(err) {
			a.lastAlert.Store(&err)
		}
	}
}

// connectError returns why the first connection of a configuration failed with err: the alert of the server if one was
// read, else err. If a client with a certificate has read no alert, the error says that the server may have refused it.
func connectError(config *mysqldriver.Config, err error) error {
	var serverErr *mysqldriver.MySQLError
	var opErr *net.OpError
	a, ok := config.Logger.(*alertLogger)
	if !ok || tlsFailed(err) || errors.As(err, &serverErr) || errors.As(err, &opErr) && opErr.Op == "dial" {
		return err
	}
	if alert := a.lastAlert.Load(); alert != nil {
		return *alert
	}
	if len(config.TLS.Certificates) > 0 {
		return fmt.Errorf("%w: the server may not accept the client's certificate; its log says more", err)
	}
	return err
}

// tlsFailed reports whether a connection failed because of TLS.
func tlsFailed(err error) bool {
	return tlsconf.IsHandshakeError(err) || errors.Is(err, mysqldriver.ErrNoTLS)
}
