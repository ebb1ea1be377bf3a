package dbtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// tree is a folder with unpacked packages of another Debian suite, and all packages that these need. They are not
// installed.
type tree struct{ root string }

// maxTreeAge is how long a tree counts as the newest in the suite after a check.
const maxTreeAge = 12 * time.Hour

// unpackSuite returns a tree with the newest packages of a suite. It fetches them with apt, which checks signatures,
// from the mirror that this machine's own sources name.
func unpackSuite(suite string, packages ...string) *tree {
	defer wrapFailure("get %s of Debian %s", packages, suite)
	cache, unlock := lockCache()
	defer unlock()
	t := &tree{root: filepath.Join(cache, suite+"-"+strings.Join(packages, "-"))}
	const note = "headgate-packages" // a file whose modification time is that of the last check
	if info, err := os.Stat(filepath.Join(t.root, note)); err == nil && time.Since(info.ModTime()) < maxTreeAge {
		return t
	}
	// The packages stay there, so that apt fetches only those that have changed.
	archives := t.root + ".packages"
	apt := newApt(filepath.Join(cache, "apt-"+suite), archives, debianMirror("/etc/apt"), suite)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	install := append([]string{"install", "-y", "--download-only"}, packages...)
	for _, args := range [][]string{{"update"}, install, {"autoclean"}} {
		apt(ctx, args...)
	}
	work := t.root + ".new"
	check(os.RemoveAll(work))
	check(os.MkdirAll(work, 0o755))
	files, _ := filepath.Glob(filepath.Join(archives, "*.deb"))
	for _, file := range files {
		const script = `set -e; umask 022
dpkg-deb --fsys-tarfile "$0" | tar -x -C "$1" --keep-directory-symlink --no-same-owner`
		run(ctx, work, "sh", "-c", script, file, work)
	}
	check(os.WriteFile(filepath.Join(work, note), nil, 0o644))
	check(os.RemoveAll(t.root)) // a running server has opened its files, and loads no more
	check(os.Rename(work, t.root))
	return t
}

// newApt returns a function that runs apt-get with lists, a cache and a state of its own. In that state no package is
// installed, so apt-get fetches all packages that a package needs.
func newApt(dir, archives, mirror, suite string) (aptGet func(ctx context.Context, args ...string)) {
	for _, dir := range []string{filepath.Join(dir, "lists/partial"), filepath.Join(archives, "partial")} {
		check(os.MkdirAll(dir, 0o755))
	}
	source := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
	for name, text := range map[string]string{"sources.list": source, "status": ""} {
		check(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	options := []string{"-q"}
	for name, value := range map[string]string{
		"Dir::Etc::sourcelist": filepath.Join(dir, "sources.list"), "Dir::Etc::sourceparts": "/dev/null",
		"Dir::State::lists": filepath.Join(dir, "lists"), "Dir::State::status": filepath.Join(dir, "status"),
		"Dir::Cache": filepath.Join(dir, "cache"), "Dir::Cache::archives": archives,
		"APT::Sandbox::User": "root", "APT::Install-Recommends": "false", "Debug::NoLocking": "1",
		"APT::Update::Error-Mode": "any", // without it, an update that reaches no mirror succeeds
	} {
		options = append(options, "-o", name+"="+value)
	}
	return func(ctx context.Context, args ...string) { run(ctx, dir, "apt-get", slices.Concat(options, args)...) }
}

// debianMirror returns the mirror that apt's sources in a folder name.
func debianMirror(dir string) string {
	uri := regexp.MustCompile(`(?m)^[^#\n]*?(https?://\S+/debian/?)(\s|$)`)
	for _, pattern := range []string{"sources.list", "sources.list.d/*.sources", "sources.list.d/*.list"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			if found := uri.FindSubmatch(must(os.ReadFile(file))); found != nil {
				return string(found[1])
			}
		}
	}
	panic(failure{fmt.Errorf("the sources in %s name no mirror of Debian", dir)})
}

// program returns the path of a script that runs a program of the tree by the tree's own loader, since this machine's
// loader may be too old for it. path is the path of the program in the tree, name the name of the script.
func (t *tree) program(name, path string) string {
	arch := map[string][2]string{
		"amd64": {"x86_64-linux-gnu", "ld-linux-x86-64.so.2"},
		"arm64": {"aarch64-linux-gnu", "ld-linux-aarch64.so.1"},
	}[runtime.GOARCH]
	if arch[0] == "" || runtime.GOOS != "linux" {
		check(fmt.Errorf("no way is known to run programs of another Debian suite on %s/%s", runtime.GOOS,
			runtime.GOARCH))
	}
	if path = filepath.Join(t.root, path); !isExecutable(path) {
		check(fmt.Errorf("%s is not there", path))
	}
	libraries := filepath.Join(t.root, "usr/lib", arch[0])
	script := filepath.Join(t.root, "headgate-programs", name)
	text := fmt.Sprintf("#!/bin/sh\nexec '%s' --library-path '%s' '%s' \"$@\"\n", filepath.Join(libraries, arch[1]),
		libraries, path)
	if old, err := os.ReadFile(script); err == nil && string(old) == text {
		return script
	}
	// It is written to another file first: a script that is open for writing cannot be run.
	temp := fmt.Sprintf("%s.%d", script, os.Getpid())
	check(os.MkdirAll(filepath.Dir(script), 0o755))
	check(os.WriteFile(temp, []byte(text), 0o755))
	check(os.Rename(temp, script))
	return script
}
