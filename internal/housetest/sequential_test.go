package housetest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSequentialPackagesStartNoGoroutine looks for goroutines in the packages that make test runs without the
// race detector, by the Makefile.
func TestSequentialPackagesStartNoGoroutine(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^SEQUENTIAL = (.+)$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatal("the Makefile names no SEQUENTIAL packages")
	}
	for _, dir := range strings.Fields(string(m[1])) {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files (%v)", dir, len(files), err)
		}
		for _, path := range files {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, pos := range started(f) {
				t.Errorf("%s starts a goroutine: the package needs the race detector", fset.Position(pos))
			}
		}
	}
}

// started returns where a file starts goroutines: by a go statement, or by a function named Go, as those of
// [sync.WaitGroup] and package sched are.
func started(f *ast.File) (places []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			places = append(places, n.Pos())
		case *ast.SelectorExpr:
			if n.Sel.Name == "Go" {
				places = append(places, n.Pos())
			}
		}
		return true
	})
	return places
}

func TestStarted(t *testing.T) {
	t.Parallel()
	const text = "package p\nfunc f() {\n\tgo f()\n\tvar g sync.WaitGroup\n\tg.Go(f)\n\tf()\n}"
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(started(f)); got != 2 {
		t.Errorf("%d places, want 2", got)
	}
}
