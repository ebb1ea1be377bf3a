// Package planted holds small faults that can be planted into this module, one at a
// time, to show that its simulator finds them.
//
// Each is a text file in faults, named after the fault:
//
//	law/bucket.go
//	One sentence: what it breaks.
//	--- old
//	text that occurs exactly once in the file
//	--- new
//	text in its place, with which the module still compiles
//
// A fault is one that callers could notice by the decisions that they get. Nothing in the
// module is changed to plant it: a build with an overlay reads another file in the place
// of the one. TestPlantedFaultsAreFound looks for each.
package planted

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed faults/*.txt
var files embed.FS

// Fault is one change of one file.
type Fault struct {
	Name     string
	Breaks   string // one sentence
	File     string // from the root of the module, with slashes
	Old, New string // Old occurs exactly once in File
}

// All returns the faults by their names.
func All() []Fault {
	names, err := fs.Glob(files, "faults/*.txt")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	list := make([]Fault, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err == nil {
			list[i], err = parse(strings.TrimSuffix(path.Base(name), ".txt"), string(text))
		}
		if err != nil {
			panic(err) // as a table that does not compile
		}
	}
	return list
}

// The lines that stand before the two texts of a fault.
const oldLine, newLine = "\n--- old\n", "\n--- new\n"

// parse reads the file of a fault.
func parse(name, text string) (Fault, error) {
	head, change, ok := strings.Cut(text, oldLine)
	before, after, both := strings.Cut(change, newLine)
	file, breaks, told := strings.Cut(head, "\n")
	f := Fault{
		Name: name, File: file, Breaks: strings.Join(strings.Fields(breaks), " "),
		Old: before, New: strings.TrimSuffix(after, "\n"),
	}
	if !ok || !both || !told || f.Old == "" || f.Old == f.New {
		return Fault{}, fmt.Errorf("fault %s: want a file, a sentence, %q and %q", name, oldLine, newLine)
	}
	return f, nil
}

// Plant returns the text of the file with the fault in it.
func (f Fault) Plant(source string) (string, error) {
	if n := strings.Count(source, f.Old); n != 1 {
		return "", fmt.Errorf("fault %s: its old text occurs %d times in %s, want once", f.Name, n, f.File)
	}
	return strings.Replace(source, f.Old, f.New, 1), nil
}

// Overlay writes the changed file into dir, and beside it the argument of
// go build -overlay, whose path it returns. root is that of the module.
func (f Fault) Overlay(root, dir string) (path string, err error) {
	original, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(f.File)))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("fault %s: %w", f.Name, err)
	}
	text, err := f.Plant(string(source))
	if err != nil {
		return "", err
	}
	changed, err := filepath.Abs(filepath.Join(dir, f.Name+".go"))
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	path = strings.TrimSuffix(changed, ".go") + ".json"
	return path, errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(path, overlay, 0o600))
}
