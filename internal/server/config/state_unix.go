//go:build unix

package config

import "golang.org/x/sys/unix"

// canWrite reports whether files can be made in a folder.
func canWrite(folder string) bool { return unix.Access(folder, unix.W_OK|unix.X_OK) == nil }
