package envoy

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Folders of a folder are looked into so deep; links may form a circle.
const maxFolders = 16

// Read reads a file, or all files of a folder and the folders in it whose names end in .yaml or .yml. Names that
// begin with a dot are left out, so a ConfigMap that is mounted is read once. A folder without such a
// file is an error: mostly it is the wrong one. parse is [Parse] or [Merge].
func Read(path string, parse Parser) (*Config, error) {
	files, err := load(path)
	if err != nil {
		return nil, err
	}
	return parse(files...)
}

// Parser makes a configuration of files: [Parse] or [Merge].
type Parser func(...File) (*Config, error)

// load reads the files of a path, in the order of their names.
func load(path string) (files []File, err error) {
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

// followEvery is how often files are looked at.
const followEvery = time.Second

// Follower keeps a server at what its files say. Create one with [Follow]. It is safe for concurrent use.
type Follower struct {
	trouble
	path   string
	parse  Parser
	server *Server
	seen   []File // what the last look found
	tried  []File // what was tried last
}

// Follow reads the files by [Parse] or [Merge], and puts them into force. An error is that of the files; nothing is
// followed then.
func Follow(path string, parse Parser, s *Server) (*Follower, error) {
	f := &Follower{path: path, parse: parse, server: s}
	files, err := load(path)
	if err != nil {
		return nil, err
	}
	c, err := parse(files...)
	if err != nil {
		return nil, err
	}
	s.Use(c)
	f.seen, f.tried = files, files
	return f, nil
}

// Run looks at the files each second, until ctx is done. A change is put into force when two looks have found
// the same: the first may have come while it was being written. What is wrong is logged, and the
// configuration stays.
func (f *Follower) Run(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.look(log)
		}
	}
}

// look looks once.
func (f *Follower) look(log *slog.Logger) {
	files, err := load(f.path)
	settled := err == nil && same(files, f.seen)
	f.seen = files
	switch {
	case err != nil:
		f.wrong(log, err)
		f.tried = nil
	case settled && !same(files, f.tried):
		f.tried = files
		c, err := f.parse(files...)
		if err != nil {
			f.wrong(log, err)
			return
		}
		f.server.Use(c)
		f.text.Store(nil)
		log.Info("the configuration for Envoy was read again", "path", f.path, "domains", c.Domains(),
			"limits", c.Limits())
	}
}

// wrong says what is wrong, once.
func (f *Follower) wrong(log *slog.Logger, err error) {
	f.trouble.wrong(log, err, "the configuration for Envoy is not in force; the limits stay what they were", "path",
		f.path)
}

func same(a, b []File) bool {
	return slices.EqualFunc(a, b, func(x, y File) bool { return x.Name == y.Name && string(x.Text) == string(y.Text) })
}
