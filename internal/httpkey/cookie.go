package httpkey

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/law"
)

// Cookies returns the distinct values of a cookie in a normal form. Some applications strip blanks and quotes from a
// cookie, some decode %61. Values that any application reads as equal have to be one key, or a client would have as
// many keys as it finds spellings. So Cookies strips and decodes all of that. A value with a quote or a backslash in
// it, which some applications read and others drop, is an error of the client's (RFC 6265, section 4.1.1).
func Cookies(h http.Header, name string) (values []string, err error) {
	for _, line := range h["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			cookieName, value, _ := strings.Cut(pair, "=")
			if cookieName = strings.Trim(cookieName, " \t"); cookieName != name && percentDecode(cookieName) != name {
				continue
			}
			value = strings.Trim(value, " \t")
			if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
				value = value[1 : len(value)-1]
			}
			if strings.ContainsAny(value, `"\`) {
				return nil, law.Invalid("cookie:"+name, "has a quote or a backslash in its value, which servers read "+
					"differently")
			}
			if value = percentDecode(value); value != "" && !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
	}
	return values, nil
}

// percentDecode decodes the percent-encoding of a text. It returns the text as it is if the result would be no text.
func percentDecode(s string) string {
	if d, err := url.QueryUnescape(s); err == nil && utf8.ValidString(d) && !strings.ContainsRune(d, 0) {
		return d
	}
	return s
}
