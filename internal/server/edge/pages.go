package edge

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/api"
)

// pageGuard refuses requests that web pages of other origins make a browser send.
type pageGuard struct {
	inner  http.Handler
	log    *slog.Logger
	hosts  map[string]bool
	exempt []string // paths without the check of the origin
	origin *http.CrossOriginProtection
}

func newPageGuard(h http.Handler, log *slog.Logger, c *Config) *pageGuard {
	p := &pageGuard{
		inner: h, log: log, hosts: map[string]bool{}, exempt: c.Proxied, origin: http.NewCrossOriginProtection(),
	}
	for _, name := range c.Hosts {
		p.hosts[httpkey.HostName(name)] = true
	}
	return p
}

// Values of headers. Each is in the headers of all answers, so nothing may change it.
var (
	nosniff     = []string{"nosniff"}                                    // no answer is a script
	sameOrigin  = []string{"same-origin"}                                // nor an image, for others
	noEmbedding = []string{"default-src 'none'; frame-ancestors 'none'"} // nor in a frame
	noReferrer  = []string{"no-referrer"}
)

// ServeHTTP implements http.Handler.
func (p *pageGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["X-Content-Type-Options"], h["Cross-Origin-Resource-Policy"] = nosniff, sameOrigin
	h["Content-Security-Policy"], h["Referrer-Policy"] = noEmbedding, noReferrer
	if !p.namesServer(r) {
		p.log.Warn("request refused", "class", "host", "host", shorten(r.Host))
		WriteProblem(w, &api.Problem{
			Title: "Host not known here", Status: http.StatusMisdirectedRequest,
			Detail: fmt.Sprintf("Nothing was charged. This server is asked as localhost or by its IP address; to "+
				"let it be asked as %.100q, start it with --host and that name.", httpkey.HostName(r.Host)),
		})
		return
	}
	if err := p.checkOrigin(r); err != nil {
		p.log.Warn("request refused", "class", "cross-origin", "error", err, "origin", shorten(r.Header.Get("Origin")),
			"path", shorten(r.URL.Path))
		WriteProblem(w, &api.Problem{
			Title: "Cross-origin request", Status: http.StatusForbidden,
			Detail: "Nothing was charged. The headers Origin or Sec-Fetch-Site say that a web page of another " +
				"origin asks. A proxy that asks on its own account must not pass on the end user's headers; one that " +
				"asks for its users asks /v1/auth.",
		})
		return
	}
	p.inner.ServeHTTP(w, r)
}

// shorten cuts a text of a client to 200 bytes and "...", for the log: it may be as long as a header.
func shorten(text string) string {
	if len(text) <= 200 {
		return text
	}
	return text[:200] + "..."
}

// namesServer reports whether the Host of a request is one that no page of another server can cause (DNS rebinding).
// Such a page can let its own name resolve to a loopback address, so that the browser takes the answers for its own; it
// cannot do so with an address or with localhost. A browser always sends a Host. Without hosts in the configuration, an
// address that is not loopback serves any Host.
func (p *pageGuard) namesServer(r *http.Request) bool {
	if !listenerOf(r.Context()).loopback && len(p.hosts) == 0 {
		return true
	}
	name := httpkey.HostName(r.Host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "" || name == "localhost" || p.hosts[name]
}

var errForeignPage = errors.New("a page of another origin reads")

// checkOrigin returns an error if a page of another origin sends the request. http.CrossOriginProtection refuses only
// requests that change something; here such a page may not read either, unless the user navigates to the answer.
func (p *pageGuard) checkOrigin(r *http.Request) error {
	if slices.Contains(p.exempt, r.URL.Path) && r.URL.RawPath == "" { // in the spelling that the mux matches
		return nil
	}
	if err := p.origin.Check(r); err != nil {
		return err
	}
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "" && r.Header.Get("Origin") == "" {
		return nil // no browser, or a request that the user has typed
	}
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	asPost := r.WithContext(r.Context()) // Check permits every GET
	asPost.Method = http.MethodPost
	if p.origin.Check(asPost) != nil {
		return errForeignPage
	}
	return nil
}
