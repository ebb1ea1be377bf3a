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

// pages keeps the pages of other origins away from a handler.
type pages struct {
	inner  http.Handler
	log    *slog.Logger
	hosts  map[string]bool
	exempt []string // paths
	origin *http.CrossOriginProtection
}

func newPages(h http.Handler, log *slog.Logger, c *Config) *pages {
	p := &pages{
		inner: h, log: log, hosts: map[string]bool{}, exempt: c.Proxied, origin: http.NewCrossOriginProtection(),
	}
	for _, name := range c.Hosts {
		p.hosts[httpkey.HostName(name)] = true
	}
	return p
}

// Values of headers. Each is in the headers of all answers, so nothing may change it.
var (
	nosniff    = []string{"nosniff"}                                    // no answer is a script
	sameOrigin = []string{"same-origin"}                                // nor an image, for others
	noContent  = []string{"default-src 'none'; frame-ancestors 'none'"} // nor in a frame
	noReferrer = []string{"no-referrer"}
)

// ServeHTTP implements http.Handler.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["X-Content-Type-Options"], h["Cross-Origin-Resource-Policy"] = nosniff, sameOrigin
	h["Content-Security-Policy"], h["Referrer-Policy"] = noContent, noReferrer
	if !p.known(r) {
		p.log.Warn("request refused", "class", "host", "host", short(r.Host))
		WriteProblem(w, &api.Problem{
			Title: "Host not known here", Status: http.StatusMisdirectedRequest,
			Detail: fmt.Sprintf("Nothing was charged. This server is asked as localhost or by its IP address; to "+
				"let it be asked as %.100q, start it with --host and that name.", httpkey.HostName(r.Host)),
		})
		return
	}
	if err := p.foreign(r); err != nil {
		p.log.Warn("request refused", "class", "cross-origin", "error", err, "origin", short(r.Header.Get("Origin")),
			"path", short(r.URL.Path))
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

// short cuts what a client has sent to 200 bytes, for the log: it may be as long as a header, each second.
func short(text string) string {
	if len(text) <= 200 {
		return text
	}
	return text[:200] + "..."
}

// known reports whether the request names this server in a way that no page of
// another server can bring about. Such a page can let its own name resolve to a loopback
// address, and the browser takes the answers for its own then; it cannot do so with an
// address or with localhost. A browser always sends a name.
func (p *pages) known(r *http.Request) bool {
	if !placeOf(r.Context()).loopback && len(p.hosts) == 0 {
		return true
	}
	name := httpkey.HostName(r.Host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "" || name == "localhost" || p.hosts[name]
}

var errForeign = errors.New("a page of another origin reads")

// foreign returns an error if a page of another origin asks. That a page must not
// change anything is what http.CrossOriginProtection sees to; here it must not let its user's
// browser read either, unless the user goes to see the answer.
func (p *pages) foreign(r *http.Request) error {
	if slices.Contains(p.exempt, r.URL.Path) && r.URL.RawPath == "" { // written as usual, as handlers look for it
		return nil
	}
	if err := p.origin.Check(r); err != nil {
		return err
	}
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "" && r.Header.Get("Origin") == "" {
		return nil // no browser, or one that asks for its user
	}
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	changing := r.WithContext(r.Context())
	changing.Method = http.MethodPost
	if p.origin.Check(changing) != nil {
		return errForeign
	}
	return nil
}
