package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// ServerFiles names PEM files of a server.
type ServerFiles struct {
	Cert     string // of the server, with the certificates between it and its authority
	Key      string // of Cert
	ClientCA string // of the authorities that vouch for clients; empty: clients show no certificate
	Optional bool   // a client may go without a certificate; one that it shows is verified all the same
}

// Server is a server's side of TLS, whose files can be read again while it is in use. It is safe for
// concurrent use.
type Server struct {
	files  ServerFiles
	config atomic.Pointer[configs]
}

// NewServer reads the files.
func NewServer(files ServerFiles) (*Server, error) {
	s := &Server{files: files}
	return s, s.Reload()
}

// Files returns the names of all files that are read.
func (s *Server) Files() []string {
	list := []string{s.files.Cert, s.files.Key}
	if s.files.ClientCA != "" {
		list = append(list, s.files.ClientCA)
	}
	return list
}

// Reload reads the files again, for connections that begin from now on. If that fails, what was read
// before stays.
func (s *Server) Reload() error {
	pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return fmt.Errorf("tls_cert, tls_key: %w", err)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
	}
	if s.files.ClientCA != "" {
		pem, err := os.ReadFile(s.files.ClientCA)
		if err != nil {
			return fmt.Errorf("tls_client_ca: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("tls_client_ca: %s holds no certificate", s.files.ClientCA)
		}
		c.SessionTicketsDisabled = true // a session must not outlive the authority that vouched for its client
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if s.files.Optional {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	all := configs{}
	for _, protocol := range []string{HTTP1, HTTP2, Unnamed} {
		one := c.Clone()
		if protocol != Unnamed {
			one.NextProtos = []string{protocol}
		}
		all[protocol] = one
	}
	s.config.Store(&all)
	return nil
}

// The protocols of a listener, as they are named in ALPN.
const (
	HTTP1 = "http/1.1"
	HTTP2 = "h2"
	// Unnamed stands for a protocol without a name in ALPN.
	Unnamed = ""
)

// configs are those of what was read, by the protocol.
type configs map[string]*tls.Config

// Config returns a configuration that uses what was read last, for a listener that speaks such a protocol.
func (s *Server) Config(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return (*s.config.Load())[protocol], nil
		},
	}
}
