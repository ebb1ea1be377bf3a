package config

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// stateFile is the file of the default store.
const stateFile = "headgate.db"

// sharedState is the folder of the default store for a user whose own folder for state cannot be used.
const sharedState = "/var/lib/headgate"

// defaultStore returns the URL of the default store. Its file is headgate.db in the folder of the service manager
// ($STATE_DIRECTORY), else in the current folder if the file is there or can be made, else in the first folder for
// state that this user can use, which may not exist yet.
func defaultStore() string {
	if folder, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); filepath.IsAbs(folder) {
		return stateIn(folder)
	}
	if _, err := os.Lstat(stateFile); err == nil || canWrite(".") {
		return DefaultStore
	}
	for _, folder := range stateFolders() {
		if canMake(folder) {
			return stateIn(folder)
		}
	}
	return DefaultStore // opening it fails with the reason
}

// stateIn returns the URL of the store's file in a folder.
func stateIn(folder string) string {
	path := filepath.ToSlash(filepath.Join(folder, stateFile))
	escaped := (&url.URL{Path: path}).EscapedPath()
	if strings.HasPrefix(path, "/") {
		return "sqlite://" + escaped
	}
	return "sqlite:" + escaped
}

// stateFolders returns the folders for state, the preferred one first: the user's by the XDG Base Directory
// Specification or by Windows, then the system's.
func stateFolders() (folders []string) {
	// The specification wants a path that is not absolute to be ignored.
	if home := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(home) {
		folders = append(folders, filepath.Join(home, "headgate"))
	}
	if runtime.GOOS == "windows" {
		if local, err := os.UserCacheDir(); err == nil { // %LocalAppData%
			folders = append(folders, filepath.Join(local, "headgate"))
		}
		return folders
	}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		folders = append(folders, filepath.Join(home, ".local", "state", "headgate"))
	}
	return append(folders, sharedState)
}

// canMake reports whether a folder is writable, or does not exist and can be made.
func canMake(folder string) bool {
	for {
		info, err := os.Stat(folder)
		if err == nil {
			return info.IsDir() && canWrite(folder)
		}
		parent := filepath.Dir(folder)
		if !errors.Is(err, fs.ErrNotExist) || parent == folder {
			return false
		}
		folder = parent
	}
}
