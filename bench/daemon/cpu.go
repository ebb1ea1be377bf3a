package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the CPU times in /proc: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// CPU returns the CPU time of all programs that this process started and that still run,
// and of those that they started; below 0 where there is no /proc. A program that has ended
// counts with its parent.
func CPU() time.Duration {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return -1
	}
	parent, spent := map[int]int{}, map[int]time.Duration{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name stands in brackets and may hold spaces.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 15 {
			continue
		}
		parent[pid], _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] { // utime, stime, and those of children that were waited for
			n, _ := strconv.ParseInt(f, 10, 64)
			spent[pid] += time.Duration(n) * tick
		}
	}
	var sum time.Duration
	for pid := range parent {
		for up := parent[pid]; up > 1; up = parent[up] {
			if up == os.Getpid() {
				sum += spent[pid]
				break
			}
		}
	}
	return sum
}
