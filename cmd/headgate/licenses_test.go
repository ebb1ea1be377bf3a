package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
)

// module is a module that is linked into the binary, as go list has it.
type module struct {
	Path, Version, Dir string
	Main               bool
}

// linkedModules returns the modules with packages that a release links on some system: the main one, then by path.
func linkedModules(t *testing.T) []module {
	t.Helper()
	var list []module
	for _, system := range []string{"linux", "darwin", "freebsd", "windows"} {
		cmd := exec.Command("go", "list", "-deps", "-tags", "headgate_otel", "-json=Module", ".")
		cmd.Env = append(os.Environ(), "GOOS="+system) // modules of other systems may have to be fetched
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list for %s: %v", system, err)
		}
		for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
			var p struct{ Module *module }
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if p.Module != nil && !slices.Contains(list, *p.Module) {
				list = append(list, *p.Module)
			}
		}
	}
	slices.SortFunc(list, func(a, b module) int {
		if a.Main != b.Main { // the main module comes first
			return map[bool]int{true: -1, false: 1}[a.Main]
		}
		return cmp.Compare(a.Path, b.Path)
	})
	return list
}

// allowedLicenses are the licences of modules that may be linked, each with a phrase of its text.
var allowedLicenses = []struct{ name, phrase string }{
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD", "Redistribution and use in source and binary forms, with or without modification, are permitted"},
}

var (
	licenseFileName = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying|patents)`)
	spacesAndCommas = regexp.MustCompile(`[\s,]+`)
)

// licenseTexts returns the kind of a module's licence, and the texts of all its files about it.
func licenseTexts(t *testing.T, name, dir string) (kind, texts string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.IsDir() || !licenseFileName.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		texts += "--- " + f.Name() + "\n\n" + strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")) + "\n\n"
		for _, l := range allowedLicenses {
			plain := spacesAndCommas.ReplaceAllString(string(text), " ")
			if kind == "" && strings.Contains(plain, spacesAndCommas.ReplaceAllString(l.phrase, " ")) {
				kind = l.name
			}
		}
	}
	if kind == "" {
		t.Errorf("%s: its licence is none of those that may be linked (%s)", name, dir)
	}
	return kind, texts
}

// sourceURL returns the URL of the source of a module, which the MPL demands.
func sourceURL(m module) string {
	return "https://pkg.go.dev/" + m.Path + "@" + m.Version
}

// licenseFile returns the text that licenses.txt has to have.
func licenseFile(t *testing.T) string {
	t.Helper()
	var index, body strings.Builder
	add := func(name, dir, source string) {
		kind, texts := licenseTexts(t, name, dir)
		fmt.Fprintf(&index, "%-10s  %s\n", kind, name)
		fmt.Fprintf(&body, "%s\n%s (%s)\nSource: %s\n\n%s", strings.Repeat("=", 80), name, kind, source, texts)
	}
	for _, m := range linkedModules(t) {
		if m.Main {
			add("headgate", m.Dir, "https://"+m.Path)
			add("the Go standard library", runtime.GOROOT(), "https://go.dev/dl/") //nolint:staticcheck // the library of the go command that runs the test
			continue
		}
		add(m.Path+" "+m.Version, m.Dir, sourceURL(m))
	}
	// The page has a library of JavaScript, with the text of its licence beside it.
	add("uPlot 1.6.32", "../../internal/server/page/static", "https://www.npmjs.com/package/uplot/v/1.6.32")
	return "Headgate contains these modules, under these licences. Each text follows, with the\n" +
		"place where its source can be had.\n\n" + index.String() + "\n" + body.String()
}

// TestLicenses checks that licenses.txt, which the binary has, names each linked module, and all have allowed licences.
func TestLicenses(t *testing.T) {
	tier.Nightly(t) // go list takes seconds for each system
	want := licenseFile(t)
	if os.Getenv("UPDATE_LICENSES") != "" {
		if err := os.WriteFile("licenses.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if licenses != want {
		for _, m := range linkedModules(t) {
			if name := m.Path + " " + m.Version; !m.Main && !strings.Contains(licenses, "\n"+name+" (") {
				t.Errorf("licenses.txt lacks %s", name)
			}
		}
		t.Error("licenses.txt is not what is linked: run make licenses")
	}
}
