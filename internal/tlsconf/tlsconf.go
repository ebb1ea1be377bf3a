// Package tlsconf reads TLS configurations from files, and tells errors of TLS from other errors of a connection.
package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// Files names PEM files of a client. A name may be empty.
type Files struct {
	CA   string // authorities that sign the server's certificate; empty: the authorities of the machine
	Cert string // certificate of the client
	Key  string // private key of Cert
}

// Config returns a configuration of TLS 1.2 or later. Errors begin with prefix and
// the name of the wrong option: ca, cert or key.
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

// IsHandshakeError reports whether a connection failed because one side rejects the
// other's certificate, or both do not agree on TLS.
func IsHandshakeError(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError // comes bare from a driver that verifies itself, as pgx with verify-ca
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
