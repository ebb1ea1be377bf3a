package rest

import "strings"

// Patterns returns the patterns of all paths that New serves. A path that is served whatever the method is
// that of GET.
func Patterns() []string {
	var patterns []string
	for _, r := range new(door).routes() {
		if !strings.Contains(r.pattern, " ") {
			r.pattern = "GET " + r.pattern
		}
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
