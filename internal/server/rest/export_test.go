package rest

import (
	"strings"

	"github.com/headgate/headgate/internal/server/auth"
)

// Patterns returns the patterns of this package's routes. A pattern without a method is returned with GET.
func Patterns() []string {
	var patterns []string
	for _, r := range new(server).routes() {
		if !strings.Contains(r.pattern, " ") {
			r.pattern = "GET " + r.pattern
		}
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// Roles returns the roles that the routes of Patterns need, by pattern.
func Roles() map[string]auth.Role {
	roles := map[string]auth.Role{}
	for i, r := range new(server).routes() {
		roles[Patterns()[i]] = r.role
	}
	return roles
}
