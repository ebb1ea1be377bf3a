package tier

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Marked is a test that says when it is run.
type Marked struct {
	Dir    string // of its package, relative to the root
	Name   string
	Tier   string // engines or nightly; empty if it needs an engine
	Engine string // the argument of dbtest.NeedEngine, as the source has it; empty if it has a tier
}

// markers are the functions that mark a test, and its tier.
var markers = map[string]string{
	"tier.Engines": "engines", "tier.Nightly": "nightly", "dbtest.NeedEngine": "", "NeedEngine": "",
}

// clusters are functions that skip a test unless their engine is the one to test with.
var clusters = map[string]string{"dbtest.Galera": "GaleraEngine", "dbtest.StartMySQLGroup": "GroupReplication"}

// Scan returns the marked tests of all packages below a folder. A mark that is not the first statement of a test, where
// commands look for it, is an error that names its place.
func Scan(root string) ([]Marked, error) {
	var marked []Marked
	err := eachTestFile(root, func(dir, path string) error {
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := scanFile(path, src)
		for _, m := range found {
			m.Dir = dir
			marked = append(marked, m)
		}
		return err
	})
	return marked, err
}

// Users returns the folders, relative to the root, of the packages whose tests depend on the tier: some are marked, or
// take numbers from [Pick].
func Users(root string) (dirs []string, err error) {
	err = eachTestFile(root, func(dir, path string) error {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err == nil && !slices.Contains(dirs, dir) && slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
			path := i.Path.Value
			return strings.HasSuffix(path, `/internal/testing/tier"`) || strings.HasSuffix(path, `/store/storetest"`)
		}) {
			dirs = append(dirs, dir)
		}
		return err
	})
	return dirs, err
}

// eachTestFile calls do for each file of tests below a folder, with the folder of its package relative to that.
func eachTestFile(root string, do func(dir, path string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (name == "testdata" || name == "bin" || name[0] == '.') {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		return do(filepath.ToSlash(dir), path)
	})
}

// scanFile returns the marked tests of a file, whose text is src.
func scanFile(path string, src []byte) (marked []Marked, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	text := func(n ast.Node) string { return string(src[n.Pos()-f.FileStart : n.End()-f.FileStart]) }
	rightful := map[ast.Node]bool{}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || len(fn.Body.List) == 0 {
			continue
		}
		if call := callOf(fn.Body.List[0]); call != nil {
			if tier, ok := markers[text(call.Fun)]; ok {
				rightful[call] = true
				m := Marked{Name: fn.Name.Name, Tier: tier}
				if tier == "" && len(call.Args) == 2 {
					m.Engine = strings.Trim(strings.TrimPrefix(text(call.Args[1]), "dbtest."), "`\"")
				}
				marked = append(marked, m)
				continue
			}
		}
		engine := ""
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				engine = cmp.Or(engine, clusters[text(call.Fun)])
			}
			return true
		})
		if engine != "" {
			marked = append(marked, Marked{Name: fn.Name.Name, Engine: engine})
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok && !rightful[call] {
			name := text(call.Fun)
			if _, isMarker := markers[name]; isMarker && err == nil {
				err = fmt.Errorf("%s: %s is not the first statement of a test", fset.Position(call.Pos()), name)
			}
		}
		return true
	})
	return marked, err
}

// callOf returns the call that a statement consists of, or nil.
func callOf(s ast.Stmt) *ast.CallExpr {
	if s, ok := s.(*ast.ExprStmt); ok {
		call, _ := s.X.(*ast.CallExpr)
		return call
	}
	return nil
}
