package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/headgate/headgate/internal/stores"
)

// What a release is, which the linker writes here: see the Makefile and .goreleaser.yaml. A build
// without the linker's flags has what the go command knows.
var (
	release string // such as v0.4.0
	commit  string // its hash
	date    string // of the commit, in RFC 3339
)

// stamp is what this binary was built from.
type stamp struct {
	version string // devel where nobody named one
	commit  string // hash; empty: it is not known
	date    string // of the commit, in RFC 3339; empty: it is not known
}

// stamped returns what this binary was built from.
func stamped() stamp {
	s := stamp{release, commit, date}
	if info, ok := debug.ReadBuildInfo(); ok {
		s.complete(info)
	}
	s.version = cmp.Or(s.version, "devel")
	return s
}

// complete adds what the go command has recorded.
func (s *stamp) complete(info *debug.BuildInfo) {
	if s.version == "" {
		s.version = strings.Trim(info.Main.Version, "()") // (devel) is that of no version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			s.commit = cmp.Or(s.commit, setting.Value)
		case "vcs.time":
			s.date = cmp.Or(s.date, setting.Value)
		}
	}
}

// short is the version and the commit in one line.
func (s stamp) short() string {
	if c := s.commit[:min(12, len(s.commit))]; c != "" && !strings.Contains(s.version, c) {
		return s.version + " " + c
	}
	return s.version
}

// version is that of this binary, the commit and the version of Go, in one line.
func version() string { return stamped().short() + " " + runtime.Version() }

// versionText is what --version prints.
func versionText() string {
	s := stamped()
	return fmt.Sprintf("headgate %s\ncommit    %s\ndate      %s\nplatform  %s/%s\nstores    %s\n", version(),
		cmp.Or(s.commit, "unknown"), cmp.Or(s.date, "unknown"), runtime.GOOS, runtime.GOARCH,
		strings.Join(stores.Schemes(), ", "))
}
