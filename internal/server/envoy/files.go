package envoy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Folders of a folder are looked into so deep; links may form a circle.
const maxFolders = 16

// Read reads a file, or all files of a folder and the folders in it whose names end in .yaml or .yml. Names that
// begin with a dot are left out, so a ConfigMap that is mounted is read once. A folder without such a
// file is an error: mostly it is the wrong one. They are parsed as by [Parse].
func Read(path string, merge bool) (*Config, error) {
	files, err := Load(path)
	if err != nil {
		return nil, err
	}
	return Parse(merge, files...)
}

// Load reads the files of a path, in the order of their names, as [Read] does.
func Load(path string) (files []File, err error) {
	if files, err = load(path, maxFolders); err != nil {
		return nil, fmt.Errorf("envoy: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("envoy: %s has no file that ends in .yaml or .yml: %w", path, fs.ErrNotExist)
	}
	return files, nil
}

// load reads a file, or those of a folder that lies so deep at most.
func load(path string, deep int) (files []File, err error) {
	info, err := os.Stat(path) // of what a link leads to
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if ext := filepath.Ext(path); deep < maxFolders && ext != ".yaml" && ext != ".yml" { // beside them in a folder
			return nil, nil
		}
		text, err := os.ReadFile(path)
		return []File{{path, text}}, err
	}
	if deep == 0 {
		return nil, fmt.Errorf("%s: folders are nested too deep, or links form a circle", path)
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, one := range list {
		if strings.HasPrefix(one.Name(), ".") {
			continue
		}
		below, err := load(filepath.Join(path, one.Name()), deep-1)
		if err != nil {
			return nil, err
		}
		files = append(files, below...)
	}
	return files, nil
}
