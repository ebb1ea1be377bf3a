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
	"internal/testing/dbtest.TestShiftClockAndSlowDisk": "a slow disk is one that a commit waits for: at least, and " +
		"never at most, as long as it was told",
}

// TestNoTestDependsOnSpeed checks that tests have no sleeps, timers or measured times outside of bubbles of
// testing/synctest: a busy machine is slower. A test must wait for a condition with package await, which gives up after
// minutes. Benchmarks may measure speed.
func TestNoTestDependsOnSpeed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for dir, src := range testFiles(t, "../../..", "store/storetest") {
		for place, use := range realTimeUses(src) {
			name := dir + "." + place.function
			if _, ok := mayWait[name]; ok {
				seen[name] = true
				continue
			}
			t.Errorf("%s: %s in %s: wait for a condition with package await, or run it in a bubble of testing/synctest",
				src.set.Position(place.pos), use, name)
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

// testFiles returns the test files below a folder, by the path of their package. All files of the helpers count.
func testFiles(t *testing.T, folder string, helpers ...string) map[string]sources {
	t.Helper()
	found := map[string]sources{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != folder && (name == "bench" || name == "testdata" || name[0] == '.') {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		dir, err := filepath.Rel(folder, filepath.Dir(path))
		if err != nil {
			return err
		}
		if dir = filepath.ToSlash(dir); !strings.HasSuffix(path, "_test.go") && !slices.Contains(helpers, dir) {
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

// realTimeUses returns where tests of a package use real time, outside of bubbles. A function runs in a bubble if it is
// passed to synctest.Test or headgatetest.Run, or to a function that passes it on, or if it is only used in bubbles.
func realTimeUses(s sources) map[place]string {
	scan := &timeScan{
		runners: map[string]bool{"synctest.Test": true, "headgatetest.Run": true}, realFuncs: map[string]bool{},
		isLibrary: len(s.files) > 0 && s.files[0].Name.Name == "storetest",
	}
	for {
		scan.places = map[place]string{}
		oldCount := len(scan.runners) + len(scan.realFuncs)
		for _, f := range s.files {
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if ok && fn.Body != nil {
					scan.scanFunction(fn)
				}
			}
		}
		if len(scan.runners)+len(scan.realFuncs) == oldCount {
			break
		}
	}
	for p := range scan.places {
		if !scan.isReal(p.function) {
			delete(scan.places, p)
		}
	}
	return scan.places
}

// timeScan finds out which functions of a package run in real time.
type timeScan struct {
	runners   map[string]bool // functions that run another one in a bubble
	realFuncs map[string]bool // functions that are used outside of bubbles
	places    map[place]string

	isLibrary bool // whether other packages use the exported functions
}

// isReal reports whether a function runs outside of bubbles: tests do, functions that are used there, and functions
// that package storetest exports. Benchmarks do not count.
func (s *timeScan) isReal(function string) bool {
	if s.isLibrary && ast.IsExported(function) {
		return true
	}
	for _, prefix := range []string{"Test", "Example", "Fuzz", "init"} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return s.realFuncs[function]
}

// scanFunction finds the uses of time in a function, the names that it uses, and whether it runs a bubble.
func (s *timeScan) scanFunction(fn *ast.FuncDecl) {
	name := fn.Name.Name
	params := map[string]bool{}
	for _, field := range fn.Type.Params.List {
		for _, id := range field.Names {
			params[id.Name] = true
		}
	}
	isReal := s.isReal(name)
	var walk func(n ast.Node, logged bool)
	walk = func(n ast.Node, logged bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				callee := calleeName(n.Fun)
				if s.runners[callee] {
					for _, arg := range n.Args {
						// The bubble itself is not scanned, except for a parameter that it runs.
						ast.Inspect(arg, func(n ast.Node) bool {
							if id, ok := n.(*ast.Ident); ok && params[id.Name] && id.Name != "t" {
								s.runners[name] = true
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
				if use := realTimeUse(n, callee, logged); use != "" {
					s.places[place{n.Pos(), name}] = use
				}
			case *ast.Ident:
				if isReal && n != fn.Name {
					s.realFuncs[n.Name] = true
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
		if pkg, ok := fun.X.(*ast.Ident); ok {
			return pkg.Name + "." + fun.Sel.Name
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
			if receiver, ok := sel.X.(*ast.CallExpr); ok && calleeName(receiver.Fun) == "time.Now" && !logged {
				return "time.Now()." + sel.Sel.Name
			}
		}
	}
	return ""
}

func TestRealTimeUsesIgnoresBubblesAndLogs(t *testing.T) {
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
	for p, use := range realTimeUses(sources{set, []*ast.File{f}}) {
		got[fmt.Sprintf("%s: %s", p.function, use)]++
	}
	want := []string{"TestA: time.Sleep", "TestD: time.Now().After", "TestD: time.Since", "both: time.Sleep"}
	if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
		t.Errorf("got %v, want %v", have, want)
	}
}
