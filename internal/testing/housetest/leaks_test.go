package housetest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// mayLeak lists the packages whose tests may leave goroutines behind, with the reason.
var mayLeak = map[string]string{}

// TestEveryPackageLooksForLeaks finds packages whose tests have no TestMain that calls package leaktest.
func TestEveryPackageLooksForLeaks(t *testing.T) {
	t.Parallel()
	looks := map[string]bool{} // by folder with tests
	err := filepath.WalkDir("../../..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == "bin"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../../.."))
		dir = strings.TrimPrefix(dir, "/")
		looks[dir] = looks[dir] || looksForLeaks(f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(looks) < 50 {
		t.Errorf("only %d packages with tests were found", len(looks))
	}
	for _, dir := range slices.Sorted(maps.Keys(looks)) {
		if _, excepted := mayLeak[dir]; looks[dir] == excepted {
			t.Errorf("package in %q: looks for leaks %v, exception %v; want one of both", dir, looks[dir], excepted)
		}
	}
	for dir := range mayLeak {
		if _, ok := looks[dir]; !ok {
			t.Errorf("there are no tests in %q, which is an exception", dir)
		}
	}
}

// looksForLeaks reports whether a file has a TestMain that calls Main or Run of package leaktest.
func looksForLeaks(f *ast.File) (found bool) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || fn.Name.Name != "TestMain" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "Main" || s.Sel.Name == "Run") {
				of, ok := s.X.(*ast.Ident)
				found = found || ok && of.Name == "leaktest"
			} else if s, ok := n.(*ast.CallExpr); ok && f.Name.Name == "leaktest" {
				of, ok := s.Fun.(*ast.Ident)
				found = found || ok && of.Name == "Main"
			}
			return true
		})
	}
	return found
}
