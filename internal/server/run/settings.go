package run

import (
	"cmp"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/metrics"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/webhook"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/internal/tlsconf"
)

// server has the settings and the parts of a server.
type server struct {
	Config
	place   config.Place
	addr    map[string]string // addresses to listen on, by the name of the setting; empty: none
	wait    time.Duration     // how long to wait for the store at the start; may be pending.NoLimit
	options stores.Options

	deadline    time.Duration // of decisions; 0: the default of the store
	logging     config.Logging
	edge        edge.Config
	rest        rest.Config
	configFiles *configFiles
	envoy       *envoyService
	metrics     *metrics.Metrics
	webhook     webhook.Config // without a URL: none
	traces      tracer         // nil: no tracing

	openAccess bool            // everybody may do everything on all addresses
	tokens     *auth.File      // nil: no tokens
	tls        *tlsconf.Server // nil: plain connections
	clientCA   bool            // clients' certificates are verified
	sources    sources         // the files of tokens, tls and envoy
}

// Check returns the first error of a file's settings, except those that name other files; or if they have none, an
// error of everything in the file that can never work.
func Check(c *config.Config) error {
	srv := server{Config: Config{File: c, Flags: func(string) (string, bool) { return "", false }}}
	if err := srv.readSettings(); err != nil {
		return err
	}
	return errors.Join(impossibleParts(c)...)
}

// read reads the settings, and the files that they name.
func (srv *server) read() (err error) {
	for _, file := range srv.File.Files { // fail now if they cannot be read again later
		if _, err := srv.ReadFile(file); err != nil {
			return err
		}
	}
	if err := srv.readSettings(); err != nil {
		return err
	}
	if err := srv.readAccess(); err != nil {
		return err
	}
	if err := srv.readNotify(); err != nil {
		return err
	}
	srv.envoy, err = newEnvoyService(srv.File, srv.Flags)
	return err
}

// readSettings reads the settings that name no other files. It also sets the bounds on notations of srv.File.
func (srv *server) readSettings() error {
	r := srv.File.Reader(srv.Flags)
	storeURL := r.Value(config.Store)
	srv.place = config.Place{URL: storeURL.Value, Configured: storeURL.By != ""}
	srv.addr = map[string]string{}
	for _, s := range addresses {
		srv.addr[s.Name] = r.Text(s)
	}
	srv.wait, srv.deadline = r.Duration(config.WaitStore, pending.NoLimit), r.Duration(config.Deadline, 0)
	srv.logging = r.Logging()
	srv.edge.MaxConnections = r.Count(config.MaxConnections)
	srv.rest.Load = load.New(r.Count(config.MaxRequests), r.Size(config.MaxBuffered))
	srv.edge.Hosts = r.Names(config.Host)
	srv.File.NotationBounds = r.NotationBounds()
	srv.edge.Proxied = rest.Proxied()
	srv.rest.Auth.Proxies = r.Proxies()
	srv.openAccess = r.Bool(config.Open)
	fields, err := forwardauth.ParseFields(r.Names(config.AuthHeaders))
	srv.rest.Auth.Fields = fields
	_, storeErr := stores.Find(srv.place.URL)
	return cmp.Or(r.Err, err, storeErr)
}

// readNotify reads where events go, and the secret that signs them.
func (srv *server) readNotify() (err error) {
	r := srv.File.Reader(srv.Flags)
	file := r.Text(config.NotifySecret)
	srv.webhook.URL = r.URL(config.NotifyURL)
	switch {
	case r.Err != nil:
		return r.Err
	case (srv.webhook.URL == "") != (file == ""):
		return headgate.Invalid(config.NotifyURL.Name, "and %s stand together", config.NotifySecret.Name)
	case file == "":
		return nil
	}
	if srv.webhook.Key, err = webhook.ReadSecret(file); err != nil {
		return headgate.Invalid(config.NotifySecret.Name, "%v", err)
	}
	return nil
}

func (srv *server) readAccess() (err error) {
	r := srv.File.Reader(srv.Flags)
	tokens := r.Text(config.Tokens)
	files := tlsconf.ServerFiles{
		Cert: r.Text(config.TLSCert), Key: r.Text(config.TLSKey), ClientCA: r.Text(config.TLSClientCA),
		Optional: tokens != "",
	}
	switch {
	case r.Err != nil:
		return r.Err
	case srv.openAccess && tokens != "":
		return headgate.Invalid(config.Open.Name, "stands beside %s; say one or the other", config.Tokens.Name)
	case (files.Cert == "") != (files.Key == ""):
		return headgate.Invalid(config.TLSCert.Name, "and %s stand together", config.TLSKey.Name)
	case files.ClientCA != "" && files.Cert == "":
		return headgate.Invalid(config.TLSClientCA.Name, "needs %s and %s", config.TLSCert.Name, config.TLSKey.Name)
	}
	srv.clientCA = files.ClientCA != ""
	if tokens != "" {
		if srv.tokens, err = auth.Open(tokens); err != nil {
			return err
		}
		srv.rest.Tokens = srv.tokens
		srv.sources = append(srv.sources, newFileSource(tokens, srv.tokens.Reload, tokens))
	}
	if files.Cert != "" {
		if srv.tls, err = tlsconf.NewServer(files); err != nil {
			return err
		}
		srv.sources = append(srv.sources, newFileSource("the TLS files", srv.tls.Reload, srv.tls.Files()...))
	}
	return nil
}
