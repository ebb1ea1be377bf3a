//go:build unix

package edge

import (
	"math"
	"syscall"
)

// maxOpenFiles returns how many files this process may have open.
func maxOpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(limit.Cur, math.MaxInt32))
}
