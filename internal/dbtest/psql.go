package dbtest

import (
	"context"
	"os/exec"
	"strings"
	"testing"
)

// Psql lets the program psql run a script, one statement after the other and on
// after errors, on the server of a URL. It returns what psql has printed, errors
// among it.
func Psql(tb testing.TB, dsn, script string) string {
	tb.Helper()
	bin := Program(tb, "psql", "postgresql-client")
	cmd := exec.CommandContext(context.Background(), bin, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
		"--dbname", dsn)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("dbtest: psql: %v\n%s", err, out)
	}
	return string(out)
}
