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
	"internal/front/deny",
	"store/front", "internal/front/guard", "internal/coarse", "internal/wrap",
	"store/memory", "internal/front/pending", "internal/front/prefetch",
}

// forbiddenFuncs has the functions with a counterpart in package sched, by package; a star stands for all.
var forbiddenFuncs = map[string][]string{
	"time": {
		"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker",
	},
	"context":      {"WithTimeout", "WithDeadline", "WithTimeoutCause", "WithDeadlineCause", "AfterFunc"},
	"runtime":      {"Gosched"},
	"math/rand":    {"*"},
	"math/rand/v2": {"*"},
	"crypto/rand":  {"*"},
	"hash/maphash": {"Comparable", "String", "Bytes"},
	"sync":         {"NewCond", "Cond", "WaitGroup"},
}

// TestOnlyPackageSchedStartsAndWaits finds go and select statements, receives from
// channels, timers, clocks and random numbers in the packages that are simulated.
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
			for pos, what := range findUnscheduled(f) {
				t.Errorf("%s: %s: use package sched", fset.Position(pos), what)
			}
		}
	}
}

// findUnscheduled returns what a file does without package sched.
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
	found := map[token.Pos]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found[n.Pos()] = "a go statement"
		case *ast.SelectStmt:
			found[n.Pos()] = "a select statement"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				found[n.Pos()] = "a receive from a channel"
			}
		case *ast.SelectorExpr:
			of, ok := n.X.(*ast.Ident)
			if !ok || of.Obj != nil {
				return true
			}
			names := forbiddenFuncs[imports[of.Name]]
			if slices.Contains(names, n.Sel.Name) || slices.Contains(names, "*") {
				found[n.Pos()] = of.Name + "." + n.Sel.Name
			}
		}
		return true
	})
	return found
}

// TestTheRuleSeesWhatItForbids checks that findUnscheduled finds each kind.
func TestTheRuleSeesWhatItForbids(t *testing.T) {
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
		t.Errorf("found %v, want 6", found)
	}
}
