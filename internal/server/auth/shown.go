package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// TokenHeader is the header, or the metadata, for a token beside Authorization: of requests on which a
// proxy passes on the Authorization of its end user.
const TokenHeader = "Headgate-Token"

// ErrUnknown is the error of a request that shows nothing by which its caller is known. Nothing was done.
var ErrUnknown = errors.New("the caller is not known")

// Shown has a caller's credentials, of any protocol.
type Shown struct {
	Token         string   // in TokenHeader; empty: none, as a proxy sends it that has none
	Authorization []string // the values of that header, where it is looked at; nil: none
	Certificate   func() *x509.Certificate
	UnixSocket    bool // it came by one, which only users of this machine reach to whom its permissions allow it
}

// Verified returns the certificate that the peer of a connection has shown and that was verified, or nil.
func Verified(c tls.ConnectionState) *x509.Certificate {
	if len(c.VerifiedChains) == 0 {
		return nil
	}
	return c.VerifiedChains[0][0]
}

// Caller returns the caller of a request; nil is one that may do everything, by a Unix socket. A token
// that is not known is an error also where none is needed. The error is [ErrUnknown].
func (t *Tokens) Caller(s Shown) (*Caller, error) {
	token := s.Token
	shown := token != ""
	if !shown && len(s.Authorization) > 0 {
		scheme, value, _ := strings.Cut(s.Authorization[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, fmt.Errorf("%w: Authorization is of another kind than Bearer", ErrUnknown)
		}
		token, shown = strings.TrimSpace(value), true
	}
	var c *Caller
	problem := "it shows no token"
	if shown {
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
