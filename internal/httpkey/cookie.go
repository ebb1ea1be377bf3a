package httpkey

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/law"
)

// Cookies returns the different values of a cookie, as they can be keys. Applications read a cookie in several ways:
// some take off blanks and quotes, some decode %61. What is one cookie to one of them has to be one key, or a client
// had as many keys as it finds spellings. So all of that is taken off here. A value that some applications read and
// others leave out, with a quote or a backslash in it, is an error of the client's (RFC 6265, section 4.1.1).
func Cookies(h http.Header, name string) (values []string, err error) {
	for _, line := range h["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			n, v, _ := strings.Cut(pair, "=")
			if n = strings.Trim(n, " \t"); n != name && decoded(n) != name {
				continue
			}
			v = strings.Trim(v, " \t")
			if len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' {
				v = v[1 : len(v)-1]
			}
			if strings.ContainsAny(v, `"\`) {
				return nil, law.Invalid("cookie:"+name, "has a quote or a backslash in its value, which servers read "+
					"differently")
			}
			if v = decoded(v); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	return values, nil
}

// decoded returns a text without percent-encoding, or as it is where it has none that makes a text.
func decoded(s string) string {
	if d, err := url.QueryUnescape(s); err == nil && utf8.ValidString(d) && !strings.ContainsRune(d, 0) {
		return d
	}
	return s
}
