package store

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/headgate/headgate/law"
)

// URL is the parsed URL of a store that is a server:
//
//	scheme://user:password@host:port,host:port/path?option=value
//
// Its String is for people: it shows neither user nor password.
type URL struct {
	Scheme   string
	User     string
	Password string
	Hosts    []string   // as written, a port included; none where the URL names none
	Path     string     // without the slash in front
	Options  url.Values // what follows the question mark
}

// The forms of the parts of a URL that messages show. None matches what can be the rest of an unescaped password.
var (
	schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]{0,15}$`)
	hostForm   = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+(%25[0-9A-Za-z._-]+)?\]|[0-9\pL._-]+|` +
		`%2[Ff]([0-9A-Za-z._-]|%2[Ff])+)(:[0-9]+)?$`)
	pathForm   = regexp.MustCompile(`^[0-9\pL._~-]*$`)
	optionForm = regexp.MustCompile(`^[0-9\pL._:/,~-]+$`)
)

// shownOptions are the options that messages show. They say where a store keeps its cells, or what it promises.
var shownOptions = []string{"host", "master", "pooler", "prefix", "synchronous"}

// ParseURL parses the URL of a server. An @ may stand in a password as it is; otherwise the characters @ / ? # % are
// written %40 %2F %3F %23 %25 in names, passwords and options. Errors are ErrInvalid, and show nothing of the URL,
// since any part of a wrong URL may be a password.
func ParseURL(raw string) (*URL, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || !schemeForm.MatchString(scheme) {
		return nil, badURL("it does not have the form scheme://user:password@host:port/path?option=value")
	}
	u := &URL{Scheme: scheme}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.ContainsAny(tail, "@#") {
		return nil, badURL("an @ or # stands after the host; in user, password and options write @ as %40, / as " +
			"%2F, ? as %3F and # as %23")
	}
	var err error
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		name, secret, _ := strings.Cut(authority[:i], ":")
		var passwordErr error
		u.User, err = url.PathUnescape(name)
		u.Password, passwordErr = url.PathUnescape(secret)
		if err != nil || passwordErr != nil {
			return nil, badEscape("user or password")
		}
		authority = authority[i+1:]
	}
	if authority != "" {
		u.Hosts = strings.Split(authority, ",")
	}
	for _, host := range u.Hosts {
		if !hostForm.MatchString(host) {
			return nil, badURL("a host is not a name or an address, with or without :port")
		}
	}
	path, query, _ := strings.Cut(tail, "?")
	if u.Path, err = url.PathUnescape(strings.TrimPrefix(path, "/")); err != nil {
		return nil, badEscape("path")
	}
	u.Options, err = parseOptions(query)
	return u, err
}

func parseOptions(query string) (url.Values, error) {
	for option := range strings.SplitSeq(query, "&") {
		if query != "" && !strings.Contains(option, "=") {
			return nil, badURL("an option does not have the form name=value; in values write & as %26")
		}
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, badEscape("option")
	}
	return options, nil
}

func badURL(problem string) error { return law.Invalid("URL", "%s", problem) }

func badEscape(where string) error {
	return badURL(where + " with a % that two hexadecimal digits do not follow, or with a semicolon; write them as " +
		"%25 and %3B")
}

// String returns the URL without user and password. It shows only options that are known to be no secrets.
func (u *URL) String() string {
	s := u.Scheme + "://" + strings.Join(u.Hosts, ",")
	if u.Path != "" && pathForm.MatchString(u.Path) {
		s += "/" + u.Path
	}
	return s + formatShown(u.Options)
}

// formatShown returns the options that messages show, with the question mark.
func formatShown(options url.Values) string {
	s := ""
	for _, name := range shownOptions {
		if value := options.Get(name); optionForm.MatchString(value) {
			s += "&" + name + "=" + value
		}
	}
	return strings.Replace(s, "&", "?", 1)
}

// RedactURL returns the URL of a store for people: without user and password, wherever they stand. If raw is not the
// URL of a store, it returns at most the scheme. All messages and logs use it to show URLs.
func RedactURL(raw string) string {
	if rest, ok := strings.CutPrefix(raw, "sqlite:"); ok { // it has no password: an @ is part of the path
		path, query, _ := strings.Cut(rest, "?")
		options, _ := parseOptions(query)
		return "sqlite:" + path + formatShown(options)
	}
	if u, err := ParseURL(raw); err == nil {
		return u.String()
	}
	switch scheme, rest, ok := strings.Cut(raw, ":"); {
	case !ok || !schemeForm.MatchString(scheme):
		return "..."
	case rest == "":
		return raw
	default:
		return scheme + ":..."
	}
}
