package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// TokenHeader is the header, or the metadata, for a token instead of Authorization: proxies may pass on
// the Authorization of an end user.
const TokenHeader = "Headgate-Token"

// ErrUnknown is the error of a request without valid credentials. Nothing was done.
var ErrUnknown = errors.New("the caller is not known")

// Credentials has a caller's credentials, of any protocol.
type Credentials struct {
	Token         string   // value of TokenHeader; empty: none
	Authorization []string // values of the header Authorization; nil if it is missing or to be ignored
	Certificate   func() *x509.Certificate
	UnixSocket    bool // the request came by a Unix socket, which only permitted users of this machine reach
}

// Verified returns the verified certificate of the peer of a connection, or nil.
func Verified(c tls.ConnectionState) *x509.Certificate {
	if len(c.VerifiedChains) == 0 {
		return nil
	}
	return c.VerifiedChains[0][0]
}

// Caller returns the caller with these credentials, or [ErrUnknown]. By a Unix socket without credentials, it returns
// nil, which may do everything. An unknown token is an error there too.
func (t *Tokens) Caller(s Credentials) (*Caller, error) {
	token := s.Token
	hasToken := token != ""
	if !hasToken && len(s.Authorization) > 0 {
		scheme, value, _ := strings.Cut(s.Authorization[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, fmt.Errorf("%w: Authorization is of another kind than Bearer", ErrUnknown)
		}
		token, hasToken = strings.TrimSpace(value), true
	}
	var c *Caller
	problem := "it shows no token"
	if hasToken {
		c, problem = t.Token(token), "its token is not listed"
	} else if cert := s.Certificate(); cert != nil {
		c, problem = t.Certificate(cert), "its certificate is not listed"
	} else if s.UnixSocket {
		return nil, nil
	}
	if c == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, problem)
	}
	return c, nil
}
