package housetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/headgate/headgate/internal/testing/command"
)

// Source is the source of a package without its tests, and what its expressions mean.
type Source struct {
	Dir   string // absolute
	Path  string // by which it is imported
	Fset  *token.FileSet
	Files []*ast.File
	Types *types.Package
	Info  *types.Info // Types, Defs and Uses
}

// ReadSource reads and type-checks the package in a folder.
func ReadSource(ctx context.Context, dir string) (*Source, error) {
	p, err := list(ctx, dir)
	if err != nil {
		return nil, err
	}
	s := &Source{Dir: p.Dir, Path: p.ImportPath, Fset: token.NewFileSet(), Info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Defs:  map[*ast.Ident]types.Object{},
		Uses:  map[*ast.Ident]types.Object{},
	}}
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(s.Fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.Files = append(s.Files, f)
	}
	config := types.Config{Importer: importer.ForCompiler(s.Fset, "gc", p.open)}
	s.Types, err = config.Check(p.ImportPath, s.Fset, s.Files, s.Info)
	return s, err
}

// listed is what the go command says of a package.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool

	exports map[string]string // import path to file
}

// list asks the go command for a package and for what it imports.
func list(ctx context.Context, dir string) (*listed, error) {
	// What the tests consist of is compiled already.
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"list"}, command.Flags(),
		[]string{"-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly", "."})...)
	cmd.Dir = dir
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", dir, err, failed.Bytes())
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		if err := d.Decode(p); err != nil {
			return nil, err
		}
		if exports[p.ImportPath] = p.Export; !p.DepOnly {
			p.exports = exports
			return p, nil
		}
	}
}

// open opens the export data of an import.
func (p *listed) open(path string) (io.ReadCloser, error) {
	file := p.exports[path]
	if file == "" {
		return nil, errors.New("no export data for " + path)
	}
	return os.Open(file)
}
