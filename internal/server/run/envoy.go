package run

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/tlsconf"
)

// envoyService serves Envoy's rate limit protocol, with limits from files or an xDS server; nil: off.
type envoyService struct {
	path    string // of the files, for which xds.MergeDomains counts too; empty: xds has the limits
	xds     envoy.XDS
	headers envoy.Headers

	server       *envoy.Server
	subscription *envoy.Subscription // nil: no xDS server
}

// newEnvoyService reads the settings, and the files, so that a mistake in them is reported before a store is opened.
func newEnvoyService(c *config.Config, flags config.Flags) (e *envoyService, err error) {
	r := c.Reader(flags)
	e = &envoyService{path: r.Text(config.Envoy)}
	e.xds = envoy.XDS{
		Addr: r.Text(config.XDS), Node: r.Text(config.XDSNode), MergeDomains: r.Bool(config.EnvoyMergeDomains),
	}
	files := tlsconf.Files{CA: r.Text(config.XDSCA), Cert: r.Text(config.XDSCert), Key: r.Text(config.XDSKey)}
	kinds := r.Names(config.EnvoyHeaders)
	if r.Err != nil {
		return nil, r.Err
	}
	if e.headers, err = envoy.ParseHeaders(kinds); err != nil {
		return nil, err
	}
	switch {
	case e.path == "" && e.xds.Addr == "":
		if len(kinds) > 0 || e.xds.MergeDomains || files != (tlsconf.Files{}) {
			return nil, headgate.Invalid(config.Envoy.Name, "is missing, and so is %s: there are no limits for Envoy, "+
				"but a setting of theirs", config.XDS.Name)
		}
		return nil, nil
	case e.path != "" && e.xds.Addr != "":
		return nil, headgate.Invalid(config.Envoy.Name, "stands beside %s; limits come from one of them",
			config.XDS.Name)
	case (files.Cert == "") != (files.Key == ""):
		return nil, headgate.Invalid(config.XDSCert.Name, "and %s stand together", config.XDSKey.Name)
	case e.path != "":
		_, err = envoy.Read(e.path, e.xds.MergeDomains)
		return e, err
	}
	if files == (tlsconf.Files{}) {
		return e, nil
	}
	e.xds.TLS = func() (*tls.Config, error) { return files.Config("xds_") }
	_, err = e.xds.TLS()
	return e, err
}

func (e *envoyService) open(s *service.Service, log *slog.Logger) (files sources, err error) {
	if e == nil {
		return nil, nil
	}
	e.server = envoy.New(s, log, e.headers)
	if e.path != "" {
		contents := func() (string, error) { // a text that changes with the files
			files, err := envoy.Load(e.path)
			return fmt.Sprintf("%q %v", files, err), err
		}
		return sources{newSource(e.path, contents, e.reload)}, e.reload()
	}
	e.xds.Log = log
	e.subscription, err = envoy.Subscribe(e.xds, e.server)
	return nil, err
}

func (e *envoyService) reload() error {
	c, err := envoy.Read(e.path, e.xds.MergeDomains)
	if err == nil {
		e.server.Use(c)
	}
	return err
}

// routes returns the HTTP paths of envoyproxy/ratelimit.
func (e *envoyService) routes() []rest.Route {
	if e == nil {
		return nil
	}
	return []rest.Route{
		{Pattern: "POST /json", Role: auth.RoleTake, Handler: e.server.ServeJSON, MaxBody: envoy.MaxBody},
		{Pattern: "GET /healthcheck", Role: auth.Anyone, Handler: e.server.ServeHealth},
	}
}

// follow applies limits from the xDS server until ctx is done.
func (e *envoyService) follow(ctx context.Context) {
	if e != nil && e.subscription != nil {
		e.subscription.Run(ctx)
	}
}

// Problem returns why the limits differ from the xDS server's; empty: no problem.
func (e *envoyService) Problem() string {
	if e == nil || e.subscription == nil {
		return ""
	}
	return e.subscription.Problem()
}
