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
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("envoy: %w", err)
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("envoy: %w", err)
		}
		return []File{{path, text}}, nil
	}
	if files, err = folder(path, maxFolders); err != nil {
		return nil, fmt.Errorf("envoy: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("envoy: %s has no file that ends in .yaml or .yml: %w", path, fs.ErrNotExist)
	}
	return files, nil
}

func folder(path string, deep int) (files []File, err error) {
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
		name := filepath.Join(path, one.Name())
		info, err := os.Stat(name) // of what a link leads to
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			below, err := folder(name, deep-1)
			if err != nil {
				return nil, err
			}
			files = append(files, below...)
			continue
		}
		if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, text})
	}
	return files, nil
}
