package housetest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryExportedNameHasAComment checks the types, functions, constants, variables, methods and interface methods of
// all packages that others can import, and the packages themselves.
func TestEveryExportedNameHasAComment(t *testing.T) {
	t.Parallel()
	names := 0
	check := func(at token.Position, name string, comments ...*ast.CommentGroup) {
		names++
		for _, c := range comments {
			if c.Text() != "" {
				return
			}
		}
		t.Errorf("%s:%d: %s has no comment", at.Filename, at.Line, name)
	}
	hasComment := map[string]bool{} // by the folder of a package
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch name := d.Name(); {
			case name == "internal", name == "testdata", name == "bench", name == "bin", name == "node_modules",
				strings.HasPrefix(name, ".") && name != "." && name != "..":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		hasComment[dir] = hasComment[dir] || f.Doc.Text() != ""
		if f.Name.Name == "main" || strings.HasSuffix(path, ".pb.go") { // the latter is generated
			return nil
		}
		for _, decl := range f.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() && hasExportedReceiver(decl.Recv) {
					check(fset.Position(decl.Pos()), decl.Name.Name, decl.Doc)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					checkSpec(fset, decl, spec, check)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, ok := range hasComment {
		if !ok {
			t.Errorf("the package in %s has no comment", dir)
		}
	}
	t.Logf("%d names in %d packages", names, len(hasComment))
}

// hasExportedReceiver reports whether a receiver has an exported type, or is nil.
func hasExportedReceiver(recv *ast.FieldList) bool {
	if recv == nil {
		return true
	}
	typ := recv.List[0].Type
	for {
		switch node := typ.(type) {
		case *ast.StarExpr:
			typ = node.X
		case *ast.IndexExpr:
			typ = node.X
		case *ast.Ident:
			return node.IsExported()
		default:
			return false
		}
	}
}

// checkSpec calls check for the names of one type, or of one line of constants or variables. The comment of a group
// counts for all lines of the group.
func checkSpec(fset *token.FileSet, decl *ast.GenDecl, spec ast.Spec,
	check func(token.Position, string, ...*ast.CommentGroup),
) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return
		}
		check(fset.Position(spec.Pos()), spec.Name.Name, decl.Doc, spec.Doc)
		if i, ok := spec.Type.(*ast.InterfaceType); ok {
			for _, m := range i.Methods.List {
				if len(m.Names) > 0 && m.Names[0].IsExported() {
					check(fset.Position(m.Pos()), spec.Name.Name+"."+m.Names[0].Name, m.Doc, m.Comment)
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				check(fset.Position(name.Pos()), name.Name, decl.Doc, spec.Doc, spec.Comment)
			}
		}
	}
}
