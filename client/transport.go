package client

import (
	"context"
	"net"
	"net/url"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// transport sends requests to a server and reads its answers, in one encoding. It is safe for concurrent use.
type transport interface {
	// call makes one request and puts the answer into out. in may be nil. Both have types of package api, or types with
	// the same JSON. The package comment lists the errors. No request is sent twice.
	call(ctx context.Context, method, path string, in, out any) error
	// close closes the connections. A call under way gets its answer before its connection is closed.
	close()
}

const maxAnswer = 64 << 20 // bytes

// newTransport returns the transport for the scheme of a URL. It does not connect yet.
func newTransport(raw string, cfg *Config) (transport, error) {
	if socket, local := strings.CutPrefix(raw, "grpc+unix:"); local && socket != "" {
		return newRPC("localhost", socket, false, cfg)
	}
	if socket, local := strings.CutPrefix(raw, "unix:"); local && socket != "" {
		return newHTTP("http://localhost", socket, cfg), nil
	}
	if scheme, found := strings.CutSuffix(raw, "unix:"); found && (scheme == "" || scheme == "grpc+") {
		return nil, headgate.Invalid("server", "%s names no socket", raw)
	}
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		u = new(url.URL)
	}
	switch u.Scheme {
	case "http", "https":
		return newHTTP(strings.TrimSuffix(raw, "/"), "", cfg), nil
	case "grpc", "grpcs":
		if u.Hostname() == "" || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
			return nil, headgate.Invalid("server", "%q is not of the form %s://HOST:PORT",
				store.RedactURL(raw), u.Scheme)
		}
		return newRPC(u.Host, "", u.Scheme == "grpcs", cfg)
	}
	return nil, headgate.Invalid("server", "%q is not a URL such as http://127.0.0.1:8080 or grpc://127.0.0.1:8081",
		store.RedactURL(raw))
}

func dialUnix(ctx context.Context, socket string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", socket)
}
