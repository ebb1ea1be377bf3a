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
	Cert     string // certificate of the server, with the intermediate certificates
	Key      string // private key of Cert
	ClientCA string // authorities that sign the certificates of clients; empty: clients need no certificate
	Optional bool   // with ClientCA: a client need not show a certificate, but one that it shows is verified
}

// Server is the TLS configuration of a server, whose files can be read again while it is in use. It is safe
// for concurrent use.
type Server struct {
	files   ServerFiles
	configs atomic.Pointer[configs]
}

// NewServer returns a Server that has read the files.
func NewServer(files ServerFiles) (*Server, error) {
	s := &Server{files: files}
	return s, s.Reload()
}

// Files returns the names of all files that Reload reads.
func (s *Server) Files() []string {
	list := []string{s.files.Cert, s.files.Key}
	if s.files.ClientCA != "" {
		list = append(list, s.files.ClientCA)
	}
	return list
}

// Reload reads the files again, for new connections. If it fails, the former certificates remain in use.
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
		c.SessionTicketsDisabled = true // a session must not outlive the authority that signed the client's certificate
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if s.files.Optional {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	byProtocol := configs{}
	for _, protocol := range []string{HTTP1, HTTP2, Unnamed} {
		config := c.Clone()
		if protocol != Unnamed {
			config.NextProtos = []string{protocol}
		}
		byProtocol[protocol] = config
	}
	s.configs.Store(&byProtocol)
	return nil
}

// The protocols of a listener, as they are named in ALPN.
const (
	HTTP1 = "http/1.1"
	HTTP2 = "h2"
	// Unnamed stands for a protocol without a name in ALPN.
	Unnamed = ""
)

// configs maps a protocol to its configuration.
type configs map[string]*tls.Config

// Config returns a configuration for a listener that speaks a protocol. It uses the certificates that were read last.
func (s *Server) Config(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return (*s.configs.Load())[protocol], nil
		},
	}
}
