package dbtest

import (
	"context"
	_ "embed" // for faultsText
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

//go:embed faults/faults.c
var faultsText []byte

// Offsets in the control file, which the library reads.
const (
	faultsFlush = 0
	faultsShift = 8
	faultsSize  = 16
)

// prepareFaults makes the library and its control file in the folder. Servers that are started there load the library.
func (f *folder) prepareFaults() {
	gcc := program("gcc", "", "gcc", "libc6-dev")
	library, control := filepath.Join(f.path, "faults.so"), filepath.Join(f.path, "faults")
	source := filepath.Join(f.path, "faults.c")
	check(os.WriteFile(source, faultsText, 0o644))
	f.run(context.Background(), "", gcc, "-shared", "-fPIC", "-O2", "-Wall", "-o", library, source, "-ldl", "-lpthread")
	f.faults = must(os.OpenFile(control, os.O_CREATE|os.O_RDWR, 0o644))
	check(f.faults.Chmod(0o644)) // whatever the umask
	f.env = append(f.env, "LD_PRELOAD="+library, "HEADGATE_FAULTS="+control)
	check(f.faults.Truncate(faultsSize))
}

// SlowDisk delays each flush of the server (fsync, fdatasync, msync), also after a restart. Zero ends that. The server
// needs [Config.Faults].
func (s *Server) SlowDisk(delay time.Duration) { s.setFault(faultsFlush, delay) }

// ShiftClock sets the wall clock of the server ahead of the machine's, or back if ahead is negative, also after a
// restart. Zero ends that. Monotonic clocks do not change. The server needs [Config.Faults].
func (s *Server) ShiftClock(ahead time.Duration) { s.setFault(faultsShift, ahead) }

func (s *Server) setFault(offset int64, d time.Duration) {
	if s.faults == nil {
		panic("dbtest: the server was not started with Config.Faults")
	}
	if _, err := s.faults.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), offset); err != nil {
		panic(fmt.Sprintf("dbtest: %v", err)) // the folder was removed
	}
}
