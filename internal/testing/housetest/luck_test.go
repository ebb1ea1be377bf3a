package housetest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayWait lists the functions of tests that sleep or read real time, and why they use neither a bubble of
// testing/synctest nor package await.
var mayWait = map[string]string{
	"internal/testing/dbtest.TestAServersClockJumpsAndItsDiskGetsSlow": "a slow disk is one that a commit waits for: at least, and " +
		"never at most, as long as it was told",
}

// TestNoTestDependsOnSpeed finds sleeps, timers and measured times in tests, except in bubbles of testing/synctest: a
// busy machine is slower. A test must wait for a condition with package await, which gives up after minutes. Benchmarks
// may measure speed.
func TestNoTestDependsOnSpeed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for dir, files := range testFiles(t, "../../..") {
		for place, what := range realTimeUses(files) {
			name := dir + "." + place.function
			if _, ok := mayWait[name]; ok {
				seen[name] = true
				continue
			}
			t.Errorf("%s: %s in %s: wait for a condition with package await, or run it in a bubble of testing/synctest",
				files.set.Position(place.pos), what, name)
		}
	}
	for name := range mayWait {
		if !seen[name] {
			t.Errorf("mayWait lists %s, which does not wait", name)
		}
	}
}

// sources are the test files of one package.
type sources struct {
	set   *token.FileSet
	files []*ast.File
}

// testFiles returns the test files below a folder, by the path of their package. All of package storetest counts.
func testFiles(t *testing.T, root string) map[string]sources {
	t.Helper()
	found := map[string]sources{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (name == "bench" || name == "testdata" || name[0] == '.') {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if dir = filepath.ToSlash(dir); !strings.HasSuffix(path, "_test.go") && dir != "store/storetest" {
			return nil
		}
		s := found[dir]
		if s.set == nil {
			s.set = token.NewFileSet()
		}
		f, err := parser.ParseFile(s.set, path, nil, parser.SkipObjectResolution)
		s.files = append(s.files, f)
		found[dir] = s
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// place is a place where a test function uses real time.
type place struct {
	pos      token.Pos
	function string
}

// realTimeUses returns where tests of a package depend on real time, which the time in bubbles is not. A bubble is a
// function that is passed to synctest.Test or headgatetest.Run, or to a function that passes it on, and a function that
// is only used in bubbles.
func realTimeUses(s sources) map[place]string {
	w := &timeScan{
		runners: map[string]bool{"synctest.Test": true, "headgatetest.Run": true}, real: map[string]bool{},
		exported: len(s.files) > 0 && s.files[0].Name.Name == "storetest",
	}
	for {
		w.places = map[place]string{}
		before := len(w.runners) + len(w.real)
		for _, f := range s.files {
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if ok && fn.Body != nil {
					w.function(fn)
				}
			}
		}
		if len(w.runners)+len(w.real) == before {
			break
		}
	}
	for p := range w.places {
		if !w.isReal(p.function) {
			delete(w.places, p)
		}
	}
	return w.places
}

// timeScan finds out which functions of a package run in real time.
type timeScan struct {
	runners map[string]bool // functions that run another one in a bubble
	real    map[string]bool // functions that are used outside of bubbles
	places  map[place]string

	exported bool // whether exported functions are used elsewhere
}

// isReal reports whether a function runs outside of bubbles: tests do, functions that are used there, and functions
// that package storetest exports. Benchmarks do not count.
func (w *timeScan) isReal(function string) bool {
	if w.exported && ast.IsExported(function) {
		return true
	}
	for _, prefix := range []string{"Test", "Example", "Fuzz", "init"} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return w.real[function]
}

func (w *timeScan) function(fn *ast.FuncDecl) {
	name := fn.Name.Name
	params := map[string]bool{}
	for _, field := range fn.Type.Params.List {
		for _, id := range field.Names {
			params[id.Name] = true
		}
	}
	isReal := w.isReal(name)
	var walk func(n ast.Node, logged bool)
	walk = func(n ast.Node, logged bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				callee := calleeName(n.Fun)
				if w.runners[callee] {
					for _, arg := range n.Args {
						// The bubble itself is not scanned, except for a parameter that it runs.
						ast.Inspect(arg, func(n ast.Node) bool {
							if id, ok := n.(*ast.Ident); ok && params[id.Name] && id.Name != "t" {
								w.runners[name] = true
							}
							return true
						})
					}
					return false
				}
				if strings.HasSuffix(callee, ".Logf") || strings.HasSuffix(callee, ".Log") {
					if !logged {
						walk(n, true)
						return false
					}
				}
				if what := realTimeUse(n, callee, logged); what != "" {
					w.places[place{n.Pos(), name}] = what
				}
			case *ast.Ident:
				if isReal && n != fn.Name {
					w.real[n.Name] = true
				}
			}
			return true
		})
	}
	walk(fn.Body, false)
}

// calleeName returns the name, or package.name, of a called function.
func calleeName(fun ast.Expr) string {
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		if of, ok := fun.X.(*ast.Ident); ok {
			return of.Name + "." + fun.Sel.Name
		}
	}
	return ""
}

// realTimeUse returns how a call uses real time, or "". Measured times may be logged.
func realTimeUse(call *ast.CallExpr, callee string, logged bool) string {
	switch callee {
	case "time.Sleep", "time.After", "time.AfterFunc", "time.Tick", "time.NewTimer", "time.NewTicker":
		return callee
	case "time.Since", "time.Until":
		if !logged {
			return callee
		}
	}
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		switch sel.Sel.Name {
		case "After", "Before", "Sub":
			if of, ok := sel.X.(*ast.CallExpr); ok && calleeName(of.Fun) == "time.Now" && !logged {
				return "time.Now()." + sel.Sel.Name
			}
		}
	}
	return ""
}

func TestLucky(t *testing.T) {
	t.Parallel()
	const text = `package p
func TestA(t *testing.T) { time.Sleep(1); begin := time.Now(); t.Logf("%v", time.Since(begin)) }
func TestB(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1); inside() }); both() }
func TestC(t *testing.T) { run(t, func(t *testing.T) { time.Sleep(1); both() }) }
func TestD(t *testing.T) { if time.Since(begin) > 1 || time.Now().After(end) { t.Error() } }
func run(t *testing.T, test func(*testing.T)) { synctest.Test(t, func(t *testing.T) { test(t) }) }
func inside() { time.Sleep(1); deeper() }
func deeper() { <-time.After(1) }
func both() { time.Sleep(1) }
`
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "p_test.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for p, what := range realTimeUses(sources{set, []*ast.File{f}}) {
		got[fmt.Sprintf("%s: %s", p.function, what)]++
	}
	want := []string{"TestA: time.Sleep", "TestD: time.Now().After", "TestD: time.Since", "both: time.Sleep"}
	if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
		t.Errorf("got %v, want %v", have, want)
	}
}
