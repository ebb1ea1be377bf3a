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

// TestEveryPackageLooksForLeaks checks that the tests of each package have a TestMain that calls package leaktest.
func TestEveryPackageLooksForLeaks(t *testing.T) {
	t.Parallel()
	hasLeakCheck := map[string]bool{} // by the folder of the tests
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
		hasLeakCheck[dir] = hasLeakCheck[dir] || looksForLeaks(f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(hasLeakCheck) < 50 {
		t.Errorf("only %d packages with tests were found", len(hasLeakCheck))
	}
	for _, dir := range slices.Sorted(maps.Keys(hasLeakCheck)) {
		if _, isException := mayLeak[dir]; hasLeakCheck[dir] == isException {
			t.Errorf("package in %q: looks for leaks %v, exception %v; want one of both", dir, hasLeakCheck[dir], isException)
		}
	}
	for dir := range mayLeak {
		if _, ok := hasLeakCheck[dir]; !ok {
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
				pkg, ok := s.X.(*ast.Ident)
				found = found || ok && pkg.Name == "leaktest"
			} else if s, ok := n.(*ast.CallExpr); ok && f.Name.Name == "leaktest" {
				fun, ok := s.Fun.(*ast.Ident)
				found = found || ok && fun.Name == "Main"
			}
			return true
		})
	}
	return found
}
