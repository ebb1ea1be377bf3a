// Package housetest checks how the files of a package use each other.
package housetest

import (
	"context"
	"fmt"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Uses tells which files of a package use which others: from a file's name to
// the names of those that declare what it uses, and one such declaration each.
type Uses map[string]map[string]string

// Load returns the uses between the files of the package in a folder, without
// its tests. A file uses another if it names a type, function, variable or
// constant that the other declares, or a method that stands there. A method
// that is called through an interface counts for no file; the receiver of a
// method is a use of its type.
func Load(ctx context.Context, dir string) (Uses, error) {
	s, err := ReadSource(ctx, dir)
	if err != nil {
		return nil, err
	}
	uses := Uses{}
	for id, object := range s.Info.Uses {
		if object.Pkg() != s.Types || !declared(s.Types, object) {
			continue
		}
		from := filepath.Base(s.Fset.Position(id.Pos()).Filename)
		to := filepath.Base(s.Fset.Position(object.Pos()).Filename)
		if from == to {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]string{}
		}
		if name := uses[from][to]; name == "" || object.Name() < name {
			uses[from][to] = object.Name()
		}
	}
	return uses, nil
}

// declared reports whether an object is declared at the level of the package, or
// is a method of a type that is no interface.
func declared(pkg *types.Package, object types.Object) bool {
	f, ok := object.(*types.Func)
	if !ok || f.Signature().Recv() == nil {
		return object.Parent() == pkg.Scope()
	}
	return !types.IsInterface(f.Signature().Recv().Type())
}

// Cycles returns the sets of files that use each other, directly or by way of
// others, the largest first. Files are in order of their names.
func (u Uses) Cycles() (cycles [][]string) {
	reached := map[string]map[string]bool{}
	for from := range u {
		seen := map[string]bool{}
		u.reach(from, seen)
		reached[from] = seen
	}
	done := map[string]bool{}
	for _, from := range slices.Sorted(maps.Keys(u)) {
		if done[from] || !reached[from][from] {
			continue
		}
		var cycle []string
		for _, to := range slices.Sorted(maps.Keys(reached[from])) {
			if reached[to][from] {
				cycle = append(cycle, to)
				done[to] = true
			}
		}
		cycles = append(cycles, cycle)
	}
	slices.SortStableFunc(cycles, func(a, b []string) int { return len(b) - len(a) })
	return cycles
}

// reach adds to seen all files that can be reached from one.
func (u Uses) reach(from string, seen map[string]bool) {
	for to := range u[from] {
		if !seen[to] {
			seen[to] = true
			u.reach(to, seen)
		}
	}
}

// Within lists the uses between some files, one a line.
func (u Uses) Within(files []string) string {
	var b strings.Builder
	for _, from := range files {
		for _, to := range slices.Sorted(maps.Keys(u[from])) {
			if slices.Contains(files, to) {
				fmt.Fprintf(&b, "%s uses %s of %s\n", from, u[from][to], to)
			}
		}
	}
	return b.String()
}
