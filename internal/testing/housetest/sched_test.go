package housetest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// simulatedPackages are the packages that use package sched for goroutines, waiting, clocks and random numbers, so that
// a simulator can control them.
var simulatedPackages = []string{
	".", "catalog", "client", "internal/flight", "internal/pause", "store", "internal/front/coalesce",
	"internal/front/deny", "store/front", "internal/front/guard", "internal/coarse", "internal/wrap", "store/memory",
	"internal/front/pending", "internal/front/prefetch",
}

// forbiddenNames has the functions and types with a counterpart in package sched, by package; a star stands for all.
var forbiddenNames = map[string][]string{
	"time":         {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"context":      {"WithTimeout", "WithDeadline", "WithTimeoutCause", "WithDeadlineCause", "AfterFunc"},
	"runtime":      {"Gosched"},
	"math/rand":    {"*"},
	"math/rand/v2": {"*"},
	"crypto/rand":  {"*"},
	"hash/maphash": {"Comparable", "String", "Bytes"},
	"sync":         {"NewCond", "Cond", "WaitGroup"},
}

// TestOnlyPackageSchedStartsAndWaits checks that the simulated packages have no go or select statements, receives from
// channels, timers, clocks or random numbers of their own.
func TestOnlyPackageSchedStartsAndWaits(t *testing.T) {
	t.Parallel()
	for _, dir := range simulatedPackages {
		files, err := filepath.Glob(filepath.Join("../../..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files (%v)", dir, len(files), err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for pos, use := range findUnscheduled(f) {
				t.Errorf("%s: %s: use package sched", fset.Position(pos), use)
			}
		}
	}
}

// findUnscheduled returns the uses of goroutines, channels, clocks and random numbers that bypass package sched.
func findUnscheduled(f *ast.File) map[token.Pos]string {
	imports := map[string]string{} // path by name
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := filepath.Base(strings.TrimSuffix(path, "/v2"))
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = path
	}
	uses := map[token.Pos]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			uses[n.Pos()] = "a go statement"
		case *ast.SelectStmt:
			uses[n.Pos()] = "a select statement"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				uses[n.Pos()] = "a receive from a channel"
			}
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if !ok || pkg.Obj != nil {
				return true
			}
			names := forbiddenNames[imports[pkg.Name]]
			if slices.Contains(names, n.Sel.Name) || slices.Contains(names, "*") {
				uses[n.Pos()] = pkg.Name + "." + n.Sel.Name
			}
		}
		return true
	})
	return uses
}

// TestFindUnscheduledFindsEachKind checks that findUnscheduled finds six uses: three statements and three functions.
func TestFindUnscheduledFindsEachKind(t *testing.T) {
	t.Parallel()
	const text = `package p
import ("time"; "math/rand/v2"; "context")
func f(ctx context.Context, a chan int) {
	go f(ctx, a)
	select {}
	<-a
	_ = time.Now()
	_ = rand.Int()
	_, _ = context.WithTimeout(ctx, time.Second)
}`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := findUnscheduled(f); len(found) != 6 {
		t.Errorf("got %v, want 6 uses", found)
	}
}
