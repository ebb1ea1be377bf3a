package mysql

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/internal/tlsconf"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// takeTLS takes the options that name certificates out of a query: ssl-ca, ssl-cert
// and ssl-key, which MariaDB and MySQL call so too. set makes a configuration use
// them.
func takeTLS(options url.Values) (set func(*driver1.Config), err error) {
	var files tlsconf.Files
	for name, file := range map[string]*string{"ssl-ca": &files.CA, "ssl-cert": &files.Cert, "ssl-key": &files.Key} {
		*file = options.Get(name)
		options.Del(name)
	}
	if files == (tlsconf.Files{}) {
		return func(*driver1.Config) {}, nil
	}
	skip := false
	switch mode := options.Get("tls"); mode {
	case "", "1", "true", "TRUE", "True":
	case "skip-verify":
		skip = true
	default:
		return nil, law.Invalid("URL", "tls=%s does without certificates, and so has no use for ssl-ca, ssl-cert "+
			"and ssl-key", mode)
	}
	switch {
	case skip && files.CA != "":
		return nil, law.Invalid("URL", "tls=skip-verify asks no authority, and so has no use for ssl-ca")
	case (files.Cert == "") != (files.Key == ""):
		return nil, law.Invalid("URL", "ssl-cert and ssl-key need each other")
	}
	c, err := files.Config("ssl-")
	if err != nil {
		return nil, fmt.Errorf("%w: URL: %w", store.ErrSetup, err)
	}
	c.InsecureSkipVerify = skip
	return func(config *driver1.Config) {
		config.TLS, config.Logger = c.Clone(), &alerts{}
		config.TLS.ServerName, _, _ = net.SplitHostPort(config.Addr)
	}, nil
}

// alerts is a logger of the client that keeps what a server has against a connection:
// the client's error says only that the connection is invalid.
type alerts struct{ last atomic.Pointer[error] }

// Print implements the client's logger.
func (a *alerts) Print(values ...any) {
	for _, v := range values {
		if err, ok := v.(error); ok && tlsconf.Failed(err) {
			a.last.Store(&err)
		}
	}
}

// alertOf returns why the first connection of a configuration failed. Where the server
// ended it before its alert was read, only a guess is left.
func alertOf(config *driver1.Config, err error) error {
	var answered *driver1.MySQLError
	var operation *net.OpError
	a, ok := config.Logger.(*alerts)
	if !ok || tlsFailed(err) || errors.As(err, &answered) || errors.As(err, &operation) && operation.Op == "dial" {
		return err
	}
	if last := a.last.Load(); last != nil {
		return *last
	}
	if len(config.TLS.Certificates) > 0 {
		return fmt.Errorf("%w: the server may not accept the client's certificate; its log says more", err)
	}
	return err
}

// tlsFailed reports whether no connection came about because of TLS.
func tlsFailed(err error) bool { return tlsconf.Failed(err) || errors.Is(err, driver1.ErrNoTLS) }
