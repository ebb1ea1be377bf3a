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

// tree is a folder with the programs of packages of another Debian suite, and
// all that these need. Nothing is installed.
type tree struct{ root string }

// checkedFor is how long a tree is taken for the newest that the suite has.
const checkedFor = 12 * time.Hour

// unpackSuite returns a tree with packages of a suite, the newest that there are.
// They are fetched with apt, which checks their signatures, from the mirror that
// this machine's own sources name.
func unpackSuite(suite string, packages ...string) *tree {
	defer about("get %s of Debian %s", packages, suite)
	cache, unlock := lockCache()
	defer unlock()
	t := &tree{root: filepath.Join(cache, suite+"-"+strings.Join(packages, "-"))}
	const note = "headgate-packages" // whose time is that of the last look
	if info, err := os.Stat(filepath.Join(t.root, note)); err == nil && time.Since(info.ModTime()) < checkedFor {
		return t
	}
	// What is fetched stays there: apt fetches what has changed only.
	archives := t.root + ".packages"
	apt := newApt(filepath.Join(cache, "apt-"+suite), archives, debianMirror("/etc/apt"), suite)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	install := append([]string{"install", "-y", "--download-only"}, packages...)
	for _, args := range [][]string{{"update"}, install, {"autoclean"}} {
		apt(ctx, args...)
	}
	work := t.root + ".new"
	do(os.RemoveAll(work))
	do(os.MkdirAll(work, 0o755))
	files, _ := filepath.Glob(filepath.Join(archives, "*.deb"))
	for _, file := range files {
		const script = `set -e; umask 022
dpkg-deb --fsys-tarfile "$0" | tar -x -C "$1" --keep-directory-symlink --no-same-owner`
		run(ctx, work, "sh", "-c", script, file, work)
	}
	do(os.WriteFile(filepath.Join(work, note), nil, 0o644))
	do(os.RemoveAll(t.root)) // a server that runs has its files open, and loads no more of them
	do(os.Rename(work, t.root))
	return t
}

// newApt returns apt-get, with lists, a cache and a state of its own. In that state no package is installed, so it
// fetches all that a package needs.
func newApt(dir, archives, mirror, suite string) (get func(ctx context.Context, args ...string)) {
	for _, dir := range []string{filepath.Join(dir, "lists/partial"), filepath.Join(archives, "partial")} {
		do(os.MkdirAll(dir, 0o755))
	}
	source := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
	for name, text := range map[string]string{"sources.list": source, "status": ""} {
		do(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	options := []string{"-q"}
	for name, value := range map[string]string{
		"Dir::Etc::sourcelist": filepath.Join(dir, "sources.list"), "Dir::Etc::sourceparts": "/dev/null",
		"Dir::State::lists": filepath.Join(dir, "lists"), "Dir::State::status": filepath.Join(dir, "status"),
		"Dir::Cache": filepath.Join(dir, "cache"), "Dir::Cache::archives": archives,
		"APT::Sandbox::User": "root", "APT::Install-Recommends": "false", "Debug::NoLocking": "1",
		"APT::Update::Error-Mode": "any", // else an update that reached nobody succeeds
	} {
		options = append(options, "-o", name+"="+value)
	}
	return func(ctx context.Context, args ...string) { run(ctx, dir, "apt-get", slices.Concat(options, args)...) }
}

// debianMirror returns the mirror that the sources of apt name in a folder.
func debianMirror(dir string) string {
	uri := regexp.MustCompile(`(?m)^[^#\n]*?(https?://\S+/debian/?)(\s|$)`)
	for _, pattern := range []string{"sources.list", "sources.list.d/*.sources", "sources.list.d/*.list"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			if found := uri.FindSubmatch(get(os.ReadFile(file))); found != nil {
				return string(found[1])
			}
		}
	}
	panic(failure{fmt.Errorf("the sources in %s name no mirror of Debian", dir)})
}

// program returns a program of the tree, by its path there: a script that has the
// tree's own loader run it, since this machine's may be too old for it. name is
// the script's, under which others may know the program.
func (t *tree) program(name, path string) string {
	arch := map[string][2]string{
		"amd64": {"x86_64-linux-gnu", "ld-linux-x86-64.so.2"},
		"arm64": {"aarch64-linux-gnu", "ld-linux-aarch64.so.1"},
	}[runtime.GOARCH]
	if arch[0] == "" || runtime.GOOS != "linux" {
		do(fmt.Errorf("no way is known to run programs of another Debian suite on %s/%s", runtime.GOOS, runtime.GOARCH))
	}
	if path = filepath.Join(t.root, path); !executable(path) {
		do(fmt.Errorf("%s is not there", path))
	}
	libraries := filepath.Join(t.root, "usr/lib", arch[0])
	script := filepath.Join(t.root, "headgate-programs", name)
	text := fmt.Sprintf("#!/bin/sh\nexec '%s' --library-path '%s' '%s' \"$@\"\n", filepath.Join(libraries, arch[1]),
		libraries, path)
	if have, err := os.ReadFile(script); err == nil && string(have) == text {
		return script
	}
	// Written aside: one that is open for writing cannot be run.
	next := fmt.Sprintf("%s.%d", script, os.Getpid())
	do(os.MkdirAll(filepath.Dir(script), 0o755))
	do(os.WriteFile(next, []byte(text), 0o755))
	do(os.Rename(next, script))
	return script
}
