package dbtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TiDBDSNEnv is the environment variable that names a TiDB to use, so that none is built: a URL
// mysql://user:password@host:port/ of a user who may create databases.
const TiDBDSNEnv = "HEADGATE_TEST_TIDB_DSN"

// TiDBEngine is the engine TiDB, which takes as long to build as all of make test.
const TiDBEngine = "tidb"

// The server is built from TiDB's module, since tests fetch Go modules and packages of the distribution only, no images.
// With --store=unistore, the storage of TiDB's own tests, it needs no other process. The parser is a module of its own,
// so the module of TiDB lacks it: its go.mod looks in ./pkg/parser, where buildTiDB puts it.
const (
	tidbModule   = "github.com/pingcap/tidb"
	tidbRevision = "20251126154744-e4e814fdc0af" // the newest that the module proxy is known to have
)

var sharedTiDB = sync.OnceValues(func() (*Server, error) {
	return serverFrom(context.Background(), TiDBDSNEnv, startTiDB)
})

// TiDB returns the URL of a new, empty database of the shared TiDB. The server is built once, which takes a quarter of
// an hour of CPU, and kept in the cache folder.
func TiDB(tb testing.TB) string {
	tb.Helper()
	return MariaDBAt(tb, sharedDSN(tb, sharedTiDB, anyKind, mariadbVersion))[0]
}

func startTiDB(ctx context.Context) (s *Server, err error) {
	defer returnFailure(&err)
	defer wrapFailure("a TiDB is built where %s names none", TiDBDSNEnv)
	program := fetchOnce("tidb-"+tidbRevision, "", func(work string) string { return buildTiDB(ctx, work) })
	return new(Config).start(ctx, "tidb", "nobody", func(f *folder, port int) *Server {
		s := &Server{DSN: fmt.Sprintf("mysql://root@127.0.0.1:%d/", port), stopSignal: syscall.SIGTERM}
		s.launch = func(ctx context.Context) *process {
			cmd := f.command(context.WithoutCancel(ctx), program, "--store=unistore",
				"--path="+filepath.Join(f.data, "data"), "--host=127.0.0.1", "-P="+strconv.Itoa(port),
				"--report-status=false", "--socket=", "-L=warn",
				"--temp-dir="+filepath.Join(f.path, "tmp"), "--log-slow-query="+filepath.Join(f.path, "slow"))
			return f.launch(ctx, cmd, 2*time.Minute, func() error { return execMariaDB(s.DSN, "do 1") })
		}
		return s
	}), nil
}

// buildTiDB builds the server in the folder work, and returns the path of the program.
func buildTiDB(ctx context.Context, work string) string {
	source := filepath.Join(work, "tidb")
	for _, m := range []struct{ module, version, to string }{
		{tidbModule, "v1.1.0-beta.0." + tidbRevision, source}, // Go sees no later release of this path
		{tidbModule + "/pkg/parser", "v0.0.0-" + tidbRevision, filepath.Join(source, "pkg/parser")},
	} {
		var downloaded struct{ Dir string }
		check(json.Unmarshal(run(ctx, work, "go", "mod", "download", "-json", m.module+"@"+m.version), &downloaded))
		run(ctx, work, "cp", "-r", "--no-preserve=mode", downloaded.Dir, m.to)
	}
	program := filepath.Join(work, "tidb-server")
	version := " -X " + tidbModule + "/pkg/parser/mysql.TiDBReleaseVersion=" + tidbRevision
	run(ctx, source, "go", "build", "-trimpath", "-ldflags=-s -w"+version, "-o", program, "./cmd/tidb-server")
	check(os.Chmod(program, 0o755)) // whatever the umask: the user nobody runs it
	return program
}
