//go:build !unix

package config

import "os"

// canWrite reports whether files can be made in a folder, by making one.
func canWrite(folder string) bool {
	f, err := os.CreateTemp(folder, ".headgate-*")
	if err != nil {
		return false
	}
	f.Close()
	return os.Remove(f.Name()) == nil
}
