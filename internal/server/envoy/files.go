package envoy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxFolders bounds the depth of nested folders, since links may form a circle.
const maxFolders = 16

// Read loads the files of a path and parses them with [Parse].
func Read(path string, merge bool) (*Config, error) {
	files, err := Load(path)
	if err != nil {
		return nil, err
	}
	return Parse(merge, files...)
}

// Load reads a file, or all files of a folder and its subfolders whose names end in .yaml or .yml, in the order of the
// names. It leaves out names that begin with a dot, so that it reads a mounted ConfigMap once. A folder without such a
// file is an error.
func Load(path string) (files []File, err error) {
	if files, err = load(path, maxFolders); err != nil {
		return nil, fmt.Errorf("envoy: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("envoy: %s has no file that ends in .yaml or .yml: %w", path, fs.ErrNotExist)
	}
	return files, nil
}

// load reads a file, or the files of a folder whose subfolders may be nested to a depth.
func load(path string, depth int) (files []File, err error) {
	info, err := os.Stat(path) // follows links
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if ext := filepath.Ext(path); depth < maxFolders && ext != ".yaml" && ext != ".yml" { // within a folder
			return nil, nil
		}
		text, err := os.ReadFile(path)
		return []File{{path, text}}, err
	}
	if depth == 0 {
		return nil, fmt.Errorf("%s: folders are nested too deep, or links form a circle", path)
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, entry := range list {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		below, err := load(filepath.Join(path, entry.Name()), depth-1)
		if err != nil {
			return nil, err
		}
		files = append(files, below...)
	}
	return files, nil
}
