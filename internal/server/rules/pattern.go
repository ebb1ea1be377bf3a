package rules

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

type pattern []segment

// segment is a part of a pattern between slashes.
type segment struct {
	kind segmentKind
	text string // a literal in lower case, or the name of a wildcard, which may be empty
}

type segmentKind uint8

const (
	literal     segmentKind = iota
	oneSegment              // {NAME}: any segment
	allSegments             // {NAME...}, or a slash at the end: any number of segments, also none
)

// parsePattern reads a pattern such as /users/{id}/.
func parsePattern(text string) (pattern, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf("%.100q does not begin with a slash", text)
	}
	if strings.ContainsAny(text, "?#") {
		return nil, fmt.Errorf("%.100q can never match: a path has no query and no fragment", text)
	}
	if decoded, err := url.PathUnescape(text); err != nil || decoded != text {
		return nil, fmt.Errorf("%.100q can never match: paths are compared decoded, so write it without escapes", text)
	}
	var p pattern
	body, open := strings.CutSuffix(text[1:], "/")
	if text == "/" {
		return pattern{{kind: allSegments}}, nil
	}
	parts := strings.Split(body, "/")
	for i, part := range parts {
		last := i == len(parts)-1 && !open
		if part == "{$}" && last {
			return p, nil
		}
		s, err := parseSegment(part, last)
		if err != nil {
			return nil, fmt.Errorf("%.100q %w", text, err)
		}
		if s.text != "" && s.kind != literal && slices.ContainsFunc(p, func(earlier segment) bool {
			return earlier.kind != literal && earlier.text == s.text
		}) {
			return nil, fmt.Errorf("%.100q has two wildcards %s", text, s.text)
		}
		p = append(p, s)
	}
	if open {
		p = append(p, segment{kind: allSegments})
	}
	return p, nil
}

// parseSegment reads a segment of a pattern. Errors follow the pattern in a message.
func parseSegment(part string, last bool) (segment, error) {
	switch part {
	case "":
		return segment{}, fmt.Errorf("can never match: double slashes are removed from paths")
	case ".", "..":
		return segment{}, fmt.Errorf("can never match: %s is removed from paths", part)
	}
	if !strings.ContainsAny(part, "{}") {
		if strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") {
			return segment{}, fmt.Errorf("can never match: blanks and dots at the end are left out of paths")
		}
		return segment{text: strings.ToLower(part)}, nil
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(part, "{"), "}")
	if len(inner) != len(part)-len("{}") || strings.ContainsAny(inner, "{}") {
		return segment{}, fmt.Errorf("has a brace in %.40q; a wildcard is a whole segment such as {id}", part)
	}
	s := segment{kind: oneSegment, text: inner}
	if name, all := strings.CutSuffix(inner, "..."); all {
		if !last {
			return segment{}, fmt.Errorf("has %.40q before its end", part)
		}
		s = segment{kind: allSegments, text: name}
	}
	if !isName(s.text) {
		return segment{}, fmt.Errorf("has a wildcard %.40q; its name has letters, digits and _", part)
	}
	return s, nil
}

// isName reports whether a text can be the name of a wildcard.
var isName = regexp.MustCompile(`^\w{1,64}$`).MatchString

func (p pattern) hasWildcard(name string) bool {
	return slices.ContainsFunc(p, func(s segment) bool { return s.kind != literal && s.text == name })
}

// wildcardValue returns the part of a clean path that a wildcard matches.
func (p pattern) wildcardValue(name, clean string) string {
	for _, s := range p {
		if s.kind == allSegments {
			if s.text == name {
				return clean
			}
			return ""
		}
		before, after, _ := strings.Cut(clean, "/")
		if s.kind == oneSegment && s.text == name {
			return before
		}
		clean = after
	}
	return ""
}

// matches reports whether a path matches, given its segments in lower case.
func (p pattern) matches(path []string) bool {
	for i, s := range p {
		if s.kind == allSegments {
			return true
		}
		if i == len(path) || s.kind == literal && s.text != path[i] {
			return false
		}
	}
	return len(p) == len(path)
}

// covers reports whether p matches each path that q matches.
func (p pattern) covers(q pattern) bool {
	for i, s := range p {
		switch {
		case s.kind == allSegments:
			return true
		case i >= len(q) || q[i].kind == allSegments:
			return false
		case s.kind == literal && s != q[i]:
			return false
		}
	}
	return len(p) == len(q)
}

// overlaps reports whether some path matches both patterns.
func (p pattern) overlaps(q pattern) bool {
	for i := 0; ; i++ {
		switch {
		case i < len(p) && p[i].kind == allSegments, i < len(q) && q[i].kind == allSegments:
			return true
		case i == len(p) || i == len(q):
			return len(p) == len(q)
		case p[i].kind == literal && q[i].kind == literal && p[i].text != q[i].text:
			return false
		}
	}
}

// cleanPath returns a path without dot segments, double slashes, and slashes at both ends. ok is false for a target
// that is not a path, such as the * of OPTIONS.
func cleanPath(p string) (clean string, ok bool) {
	if !strings.HasPrefix(p, "/") {
		return "", p == ""
	}
	if strings.Contains(p, "//") || strings.Contains(p, "/.") {
		p = path.Clean(p)
	}
	return strings.TrimSuffix(p[1:], "/"), true
}
