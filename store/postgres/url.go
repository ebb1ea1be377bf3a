package postgres

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// parseURL checks a URL, and returns it in the form that pgx accepts: without Headgate's option pooler, and with an @
// in a password escaped. pooler says that a pooler may send each transaction to another session.
func parseURL(raw string) (dsn string, pooler bool, err error) {
	u, err := store.ParseURL(raw)
	if err != nil {
		return "", false, err
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", false, law.Invalid("URL", "it does not begin with postgres:// or postgresql://")
	}
	switch mode := u.Options.Get("pooler"); mode {
	case "", "session":
	case "transaction":
		pooler = true
	default:
		return "", false, law.Invalid("URL", "pooler is %q; it is transaction or session", mode)
	}
	dsn, query, _ := strings.Cut(raw, "?")
	if userPart, hosts, ok := cutLast(dsn, "@"); ok {
		dsn = strings.ReplaceAll(userPart, "@", "%40") + "@" + hosts
	}
	separator := "?"
	for option := range strings.SplitSeq(query, "&") {
		if option != "" && !strings.HasPrefix(option, "pooler=") {
			dsn += separator + option
			separator = "&"
		}
	}
	return dsn, pooler, nil
}

// cutLast cuts s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// urlError returns why pgx cannot use a URL. An unusable certificate or key is ErrSetup: the URL itself may be right.
func urlError(err error) error {
	problem := parseProblem(err)
	if strings.HasPrefix(problem, "failed to configure TLS") {
		return fmt.Errorf("postgres: %w: URL: %s", store.ErrSetup, problem)
	}
	return fmt.Errorf("postgres: %w", law.Invalid("URL", "%s", problem))
}

// parseProblem returns the text of pgx's error about a URL, without the URL and without quoted parts of it.
func parseProblem(err error) string {
	_, problem, _ := cutLast(err.Error(), "`: ")
	if static, _, ok := strings.Cut(problem, " ("); ok && strings.HasPrefix(problem, "failed to parse") {
		return static
	}
	return problem
}
