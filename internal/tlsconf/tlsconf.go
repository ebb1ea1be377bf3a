// Package tlsconf reads TLS configurations from files, and recognizes what fails for the
// sake of TLS from what fails otherwise.
package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// Files names PEM files. An empty name stands for none.
type Files struct {
	CA   string // of the authorities that vouch for the server; none: those of the machine
	Cert string // that the client shows
	Key  string // of Cert
}

// Config returns a configuration of TLS 1.2 or later. An error begins with prefix and
// the name of the option that is at fault: ca, cert or key.
func (f Files) Config(prefix string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%sca: %w", prefix, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%sca: %s holds no certificate", prefix, f.CA)
		}
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%[1]scert, %[1]skey: %[2]w", prefix, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Failed reports whether a connection failed because one side does not accept the
// other's certificate, or does not speak TLS as the other does.
func Failed(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError // of who verifies by himself, as pgx does for verify-ca
		invalid     x509.CertificateInvalidError
		notTLS      tls.RecordHeaderError
		operation   *net.OpError
	)
	switch {
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &invalid), errors.As(err, &notTLS):
		return true
	case errors.As(err, &operation): // an alert that was received or sent
		return operation.Op == "remote error" || operation.Op == "local error"
	}
	return false
}
