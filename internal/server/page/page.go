// Package page is the web page of a server: the limited keys, the use of a key, the limits, and the audit log. It is
// embedded, needs no other host, and calls the same API as every other client, with the token of its user.
//
// The page is plain ES modules in the folder static. Each view is a module that app.js imports:
//
//	export const view = {
//		name: "limits",                // the first part of the path after #/
//		title: "Limits",               // in the navigation and in the title of the window
//		key: "l",                      // pressed after g, it goes there
//		icon: "M2 4h12...",            // the path of a symbol of 16 by 16
//		async render(root, api, params) {},  // fills the empty element root
//		leave() {},                    // ends timers; it may be absent
//	};
//
// The parameters are {path: [what follows the name, decoded], query: URLSearchParams}. Go to another view with the
// function go of dom.js. An error that render throws is shown in its place. Elements are made by h of dom.js, which
// takes text as text: nothing on the page is parsed as HTML, which the policy forbids too (trusted types). Keys are
// shown by keyText of dom.js. api.get and api.post of api.js throw a Problem; api.me is the caller, and api.me.role its
// role. Charts are drawn by chart.js and bars.js. Callbacks of timers must check root.isConnected before they write.
package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/palette"
)

//go:embed static
var static embed.FS

// Policy is the Content-Security-Policy of the page: its own files, and requests to its own server.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types 'none'"

// Prefix begins the paths of the files of the page.
const Prefix = "/page/"

// file is what the server answers to a path of the page.
type file struct {
	text        []byte
	contentType string
	tag         string // ETag
}

// contentTypes has the types of files by extension: those of the system may differ.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".uplot": "text/plain; charset=utf-8",
}

// files has all files by URL path; index.html is at / alone.
var files = readFiles()

func readFiles() map[string]file {
	all := map[string]file{}
	add := func(urlPath, name string, text []byte) {
		sum := sha256.Sum256(text)
		all[urlPath] = file{text, contentTypes[path.Ext(name)], `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	list, err := fs.Glob(static, "static/*")
	for _, name := range list {
		text, readErr := static.ReadFile(name)
		err = cmp.Or(err, readErr)
		add(Prefix+path.Base(name), name, text)
	}
	if err != nil {
		panic(err) // impossible: the files are embedded
	}
	add(Prefix+"palette.css", "palette.css", []byte(palette.CSS))
	all["/"] = all[Prefix+"index.html"]
	delete(all, Prefix+"index.html")
	return all
}

// Beside returns a handler that answers GET and HEAD for the files of the page itself, and leaves the rest to next.
func Beside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := files[r.URL.Path]
		if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.contentType)
		h.Set("Content-Security-Policy", Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // with the tag: a new version of the server is seen at once
		h.Set("ETag", f.tag)
		http.ServeContent(w, r, strings.TrimPrefix(r.URL.Path, Prefix), time.Time{}, bytes.NewReader(f.text))
	})
}
