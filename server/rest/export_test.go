package rest

// Patterns returns the patterns of all paths that New serves.
func Patterns() []string {
	var patterns []string
	for _, r := range new(door).routes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
