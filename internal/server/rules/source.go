package rules

import (
	"fmt"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/auth"
)

// source is a part of a request: of a key, or a cost.
type source struct {
	from from
	name string // of a header, a wildcard and their like; a constant itself
	bits int    // of the network of an IPv6 address

	lower, trim bool // the value is written in small letters, or without blanks at both ends
}

type from uint8

const (
	fromIP from = iota
	fromMethod
	fromHost
	fromPath
	fromHeader
	fromCookie
	fromQuery
	fromText
)

var froms = map[string]from{
	"ip": fromIP, "method": fromMethod, "host": fromHost, "path": fromPath, "header": fromHeader, "cookie": fromCookie,
	"query": fromQuery, "text": fromText,
}

// parseSource reads a source such as ip, header:X-Api-Key, or lower trim query:email.
func parseSource(text string) (source, error) {
	switch word, rest, _ := strings.Cut(text, " "); word {
	case "lower", "trim":
		s, err := parseSource(rest)
		if twice := word == "lower" && s.lower || word == "trim" && s.trim; err == nil && twice {
			err = fmt.Errorf("%.100q says %s twice", text, word)
		}
		s.lower, s.trim = s.lower || word == "lower", s.trim || word == "trim"
		return s, err
	}
	return parsePlain(text)
}

// parsePlain reads a source without lower and trim.
func parsePlain(text string) (source, error) {
	if bits, ok, err := httpkey.ParseIP(text); ok {
		return source{from: fromIP, bits: bits}, err
	}
	word, name, named := strings.Cut(text, ":")
	f, ok := froms[word]
	if !ok {
		return source{}, fmt.Errorf("%.100q is not known; there are ip, ip/BITS, method, host, path:NAME, "+
			"header:NAME, cookie:NAME, query:NAME and text:CONSTANT, with lower and trim before them", text)
	}
	if alone := f == fromIP || f == fromMethod || f == fromHost; alone == named {
		if alone {
			return source{}, fmt.Errorf("%.100q has a name; write %s alone", text, word)
		}
		return source{}, fmt.Errorf("%.100q has no name; write %s:NAME", text, word)
	}
	if named && name == "" {
		return source{}, fmt.Errorf("%.100q has an empty name", text)
	}
	var err error
	switch f {
	case fromHeader:
		name, err = headerName(name)
	case fromCookie:
		if !isToken(name) {
			err = fmt.Errorf("%.100q cannot be the name of a cookie", name)
		}
	case fromPath:
		if !isName(name) {
			err = fmt.Errorf("%.100q is not a name of letters, digits and _", name)
		}
	default:
	}
	return source{from: f, name: name}, err
}

// headerName returns the canonical form of the name of a header.
func headerName(name string) (string, error) {
	if !isToken(name) {
		return "", fmt.Errorf("%.100q cannot be the name of a header", name)
	}
	switch name = textproto.CanonicalMIMEHeaderKey(name); name {
	case "Host":
		return "", fmt.Errorf("the header Host is written host")
	case auth.TokenHeader: // a token that is part of a key would be stored, and shown in listings
		return "", fmt.Errorf("the header %s has the token of the proxy, which no rule may use", auth.TokenHeader)
	}
	return name, nil
}

// isToken reports whether a text is a token of RFC 9110 section 5.6.2: the name of a method or a header.
var isToken = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$").MatchString

// String writes a source as the file has it.
func (s source) String() string {
	if s.lower {
		s.lower = false
		return "lower " + s.String()
	} else if s.trim {
		s.trim = false
		return "trim " + s.String()
	}
	if s.from == fromIP && s.bits != httpkey.SharedBits {
		return "ip/" + strconv.Itoa(s.bits)
	}
	for word, f := range froms {
		if f == s.from && s.name != "" {
			return word + ":" + s.name
		} else if f == s.from {
			return word
		}
	}
	return ""
}

// maxCookies is how many different values a cookie may have in one request.
const maxCookies = 4

// all returns the values that a request has; none: it has none, or an empty one. An application may use the first or
// the last of several, so that a key of either would be walked around. A header or parameter that is there twice is an
// error, also with the same value: no client needs to send that. A browser sends a cookie of one name for each path
// and domain that it was set for, and HTTP/2 sends them in lines of their own: the different values are all returned,
// up to four.
func (s source) all(a *normalized, p pattern) (values []string, err error) {
	found, err := s.plain(a, p)
	if err != nil || !s.lower && !s.trim {
		return found, err
	}
	for _, v := range found {
		if s.lower {
			v = strings.ToLower(v)
		}
		if s.trim {
			v = strings.TrimSpace(v)
		}
		if v != "" && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values, nil
}

// plain returns the values of a source as they are, without lower and trim.
func (s source) plain(a *normalized, p pattern) ([]string, error) {
	value := ""
	switch s.from {
	case fromIP:
		value = httpkey.NetworkOf(a.client, s.bits)
	case fromMethod:
		value = strings.ToUpper(a.Method)
	case fromHost:
		value = a.host
	case fromPath:
		value = strings.ReplaceAll(cutParameters(p.value(s.name, a.path)), EncodedSlash, "/")
	case fromText:
		value = s.name
	case fromHeader:
		if n := len(a.Header[s.name]); n > 1 {
			return nil, headgate.Invalid(s.String(), "is there %d times; send it once", n)
		}
		value = a.Header.Get(s.name)
	case fromQuery:
		n := 0
		for pair := range strings.SplitSeq(a.Query, "&") {
			name, text, _ := strings.Cut(pair, "=")
			if decoded, err := url.QueryUnescape(name); err == nil { // else it is what it is
				name = decoded
			}
			if pair != "" && alike(name) == alike(s.name) {
				n++
			}
			if name == s.name {
				value, _ = url.QueryUnescape(text) // what cannot be decoded is missing
			}
		}
		if n > 1 {
			return nil, headgate.Invalid(s.String(), "is there %d times, perhaps in other spellings; send it once", n)
		}
	case fromCookie:
		values, err := httpkey.Cookies(a.Header, s.name)
		if err == nil && len(values) > maxCookies {
			err = headgate.Invalid(s.String(), "is there with %d different values; %d are the most", len(values),
				maxCookies)
		}
		return values, err
	}
	if value == "" {
		return nil, nil
	}
	return []string{value}, nil
}

// single refuses several values, of a cost or an id. It returns "" for none.
func (s source) single(a *normalized, p pattern) (string, error) {
	values, err := s.all(a, p)
	switch {
	case err != nil || len(values) == 0:
		return "", err
	case len(values) > 1:
		return "", headgate.Invalid(s.String(), "is there with %d different values; send one", len(values))
	}
	return values[0], nil
}

// cutParameters takes the parameters of segments off, as servlet containers do: /a;x=1/b is /a/b.
func cutParameters(path string) string {
	for {
		at := strings.IndexByte(path, ';')
		if at < 0 {
			return path
		}
		end := strings.IndexAny(path[at:], "/"+EncodedSlash)
		if end < 0 {
			return path[:at]
		}
		path = path[:at] + path[at+end:]
	}
}

// alike returns what the names of parameters have in common that some servers take for one: ASP.NET compares them
// without case, PHP takes k[] for a list k, and writes an underscore for a point or a blank.
func alike(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), "[")
	return strings.NewReplacer(".", "_", " ", "_").Replace(name)
}
