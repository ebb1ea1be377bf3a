package rules

import (
	"cmp"
	"net/url"
	"regexp"
	"strings"

	"github.com/headgate/headgate"
)

// Target is a parsed request target: a path, a whole URL, or the * of OPTIONS.
type Target struct {
	Path  string // decoded once, except for encoded slashes (see EncodedSlash); "*" for OPTIONS
	Query string // as it was sent, without the question mark
	Host  string // empty unless the target is a whole URL
}

// EncodedSlash replaces an encoded slash (%2f) in a path. Some servers take it for a part of its segment, others for a
// slash, so only a rule that allows it matches such a path. No other path has this character.
const EncodedSlash = "\x00"

// ParseTarget parses a request target. It rejects a path that servers interpret differently, since an application might
// serve it as a path of another rule: some resolve /api/..%2flogin to /login, others serve it below /api/. Other paths
// with encoded slashes are left to the rules. Errors are headgate.ErrInvalid and name the field.
func ParseTarget(field, uri string) (Target, error) {
	if uri == "*" {
		return Target{Path: uri}, nil
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil || u.Opaque != "" {
		return Target{}, headgate.Invalid(field, "%.100q is not the path of a request", uri)
	}
	switch {
	case strings.Contains(uri, "#"): // never legal here (RFC 9112, section 3.2), and the end of the path for some
		return Target{}, headgate.Invalid(field, "%.100q has a fragment, which is no part of a request; # in a path "+
			"is %%23", uri)
	case strings.ContainsFunc(u.Path, isControl):
		return Target{}, headgate.Invalid(field, "the path of %.100q has a control character", uri)
	case ambiguous(u):
		return Target{}, headgate.Invalid(field, "the path of %.100q is ambiguous: it has a segment . or .., also "+
			"with parameters such as ..;x, or a backslash", uri)
	}
	path := u.Path
	if escaped := u.EscapedPath(); escapedSlash.MatchString(escaped) {
		if path, err = url.PathUnescape(escapedSlash.ReplaceAllString(escaped, "%00")); err != nil {
			return Target{}, headgate.Invalid(field, "%.100q is not the path of a request", uri)
		}
	}
	return Target{Path: cmp.Or(path, "/"), Query: u.RawQuery, Host: u.Host}, nil
}

var escapedSlash = regexp.MustCompile("(?i)%2f")

// ambiguous reports whether servers interpret a path differently, slashes decoded or not.
func ambiguous(u *url.URL) bool {
	if strings.Contains(u.Path, `\`) {
		return true
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		// Servlet containers remove parameters before they resolve dot segments.
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
			return true
		}
	}
	return false
}

// isControl reports whether r is a control character, at which some servers end the path, and which others remove.
func isControl(r rune) bool { return r < ' ' || r == 0x7f }
