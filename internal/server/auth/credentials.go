package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// TokenHeader is the HTTP header, or the key of gRPC's metadata, of a token. It takes precedence over Authorization,
// which may have an end user's token.
const TokenHeader = "Headgate-Token"

// ErrUnknown is the error of a request without valid credentials. Nothing was done.
var ErrUnknown = errors.New("the caller is not known")

// Credentials has a caller's credentials, of any protocol.
type Credentials struct {
	Token         string                   // value of TokenHeader; empty: none
	Authorization []string                 // values of that header, of which the first counts; nil: none, or ignored
	Certificate   func() *x509.Certificate // returns the verified certificate, or nil
	UnixSocket    bool                     // the request came over a Unix socket, which only permitted users reach
}

// VerifiedCertificate returns the verified certificate of the peer of a connection, or nil.
func VerifiedCertificate(c tls.ConnectionState) *x509.Certificate {
	if len(c.VerifiedChains) == 0 {
		return nil
	}
	return c.VerifiedChains[0][0]
}

// Caller returns the caller with these credentials, or [ErrUnknown]. Of several, the first counts: Token,
// Authorization, Certificate. Without any, it returns nil over a Unix socket: a nil Caller may do everything.
func (t *Tokens) Caller(creds Credentials) (*Caller, error) {
	token := creds.Token
	hasToken := token != ""
	if !hasToken && len(creds.Authorization) > 0 {
		scheme, value, _ := strings.Cut(creds.Authorization[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, fmt.Errorf("%w: Authorization is of another kind than Bearer", ErrUnknown)
		}
		token, hasToken = strings.TrimSpace(value), true
	}
	var c *Caller
	problem := "it shows no token"
	if hasToken {
		c, problem = t.CallerByToken(token), "its token is not listed"
	} else if cert := creds.Certificate(); cert != nil {
		c, problem = t.CallerByCertificate(cert), "its certificate is not listed"
	} else if creds.UnixSocket {
		return nil, nil
	}
	if c == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, problem)
	}
	return c, nil
}
