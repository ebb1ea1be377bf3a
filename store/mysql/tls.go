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

// takeTLS removes the options that name certificates: ssl-ca, ssl-cert and ssl-key, the
// names that MariaDB and MySQL use too. set makes a configuration use the certificates.
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

// alertLogger is a logger of the client that keeps the last TLS alert of a server, since the client's error is only
// that the connection is invalid.
type alertLogger struct{ lastAlert atomic.Pointer[error] }

// Print implements the client's logger.
func (a *alertLogger) Print(values ...any) {
	for _, v := range values {
		if err, ok := v.(error); ok && tlsconf.Failed(err) {
			a.lastAlert.Store(&err)
		}
	}
}

// alertOf returns why the first connection of a configuration failed. If the server ended
// it before the client read the alert, alertOf can only guess.
func alertOf(config *mysqldriver.Config, err error) error {
	var answered *mysqldriver.MySQLError
	var operation *net.OpError
	a, ok := config.Logger.(*alertLogger)
	if !ok || tlsFailed(err) || errors.As(err, &answered) || errors.As(err, &operation) && operation.Op == "dial" {
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
func tlsFailed(err error) bool { return tlsconf.Failed(err) || errors.Is(err, mysqldriver.ErrNoTLS) }
