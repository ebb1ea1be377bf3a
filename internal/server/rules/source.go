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

// source is a part of a request from which a part of a key, a cost or an id is read.
type source struct {
	from sourceKind
	name string // name of a header, wildcard, cookie or parameter; or the constant itself
	bits int    // prefix length of IPv6 addresses

	lower, trim bool // convert the value to lower case; remove blanks at both ends
}

type sourceKind uint8

const (
	fromIP sourceKind = iota
	fromMethod
	fromHost
	fromPath
	fromHeader
	fromCookie
	fromQuery
	fromText
)

var sourceKinds = map[string]sourceKind{
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
	return parseUnmodified(text)
}

// parseUnmodified reads a source without lower and trim.
func parseUnmodified(text string) (source, error) {
	if bits, ok, err := httpkey.ParseIP(text); ok {
		return source{from: fromIP, bits: bits}, err
	}
	word, name, hasName := strings.Cut(text, ":")
	f, ok := sourceKinds[word]
	if !ok {
		return source{}, fmt.Errorf("%.100q is not known; there are ip, ip/BITS, method, host, path:NAME, "+
			"header:NAME, cookie:NAME, query:NAME and text:CONSTANT, with lower and trim before them", text)
	}
	if isNameless := f == fromIP || f == fromMethod || f == fromHost; isNameless == hasName {
		if isNameless {
			return source{}, fmt.Errorf("%.100q has a name; write %s alone", text, word)
		}
		return source{}, fmt.Errorf("%.100q has no name; write %s:NAME", text, word)
	}
	if hasName && name == "" {
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
	for word, f := range sourceKinds {
		if f == s.from && s.name != "" {
			return word + ":" + s.name
		} else if f == s.from {
			return word
		}
	}
	return ""
}

// maxCookies is the maximum number of different values of a cookie in one request.
const maxCookies = 4

// values returns the values that a request has; an empty value counts as none. An application may use the first or the
// last of several values, so a client could evade a key made of only one. A header or parameter that is there twice is
// an error, also with the same value, since no client needs that. A browser sends a cookie once for each path and
// domain that it was set for, and HTTP/2 sends cookies in separate lines: all different values are returned, up to
// maxCookies.
func (s source) values(a *normalRequest, p pattern) (values []string, err error) {
	raw, err := s.rawValues(a, p)
	if err != nil || !s.lower && !s.trim {
		return raw, err
	}
	for _, v := range raw {
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

// rawValues returns the values of a source without lower and trim.
func (s source) rawValues(a *normalRequest, p pattern) ([]string, error) {
	value := ""
	switch s.from {
	case fromIP:
		value = httpkey.NetworkOf(a.client, s.bits)
	case fromMethod:
		value = strings.ToUpper(a.Method)
	case fromHost:
		value = a.host
	case fromPath:
		value = strings.ReplaceAll(cutParameters(p.wildcardValue(s.name, a.path)), EncodedSlash, "/")
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
			if decoded, err := url.QueryUnescape(name); err == nil { // else the name stays as it is
				name = decoded
			}
			if pair != "" && foldParameter(name) == foldParameter(s.name) {
				n++
			}
			if name == s.name {
				value, _ = url.QueryUnescape(text) // a value that cannot be decoded counts as missing
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

// single returns the only value, or "" if there is none. Several values are an error.
func (s source) single(a *normalRequest, p pattern) (string, error) {
	values, err := s.values(a, p)
	switch {
	case err != nil || len(values) == 0:
		return "", err
	case len(values) > 1:
		return "", headgate.Invalid(s.String(), "is there with %d different values; send one", len(values))
	}
	return values[0], nil
}

// cutParameters removes the parameters of segments, as servlet containers do: /a;x=1/b becomes /a/b.
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

// foldParameter returns the same name for parameters that some servers take for the same: ASP.NET ignores case, PHP
// reads k[] as a list k, and replaces points and blanks by underscores.
func foldParameter(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), "[")
	return strings.NewReplacer(".", "_", " ", "_").Replace(name)
}
