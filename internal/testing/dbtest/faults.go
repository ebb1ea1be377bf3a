package dbtest

import (
	"context"
	_ "embed" // the library's text
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

//go:embed faults/faults.c
var faultsText []byte

// Places in the file that the library reads.
const (
	faultsFlush = 0
	faultsShift = 8
	faultsSize  = 16
)

// prepareFaults compiles the library into a folder, and has the servers that are started there load it.
func (f *folder) prepareFaults() {
	gcc := program("gcc", "", "gcc", "libc6-dev")
	library, control := filepath.Join(f.path, "faults.so"), filepath.Join(f.path, "faults")
	source := filepath.Join(f.path, "faults.c")
	do(os.WriteFile(source, faultsText, 0o644))
	f.run(context.Background(), "", gcc, "-shared", "-fPIC", "-O2", "-Wall", "-o", library, source, "-ldl", "-lpthread")
	f.faults = get(os.OpenFile(control, os.O_CREATE|os.O_RDWR, 0o644))
	do(f.faults.Chmod(0o644)) // whatever the umask
	f.more = append(f.more, "LD_PRELOAD="+library, "HEADGATE_FAULTS="+control)
	do(f.faults.Truncate(faultsSize))
}

// SlowDisk has each flush of the server (fsync, fdatasync) take so much longer, those of a server that is restarted
// too. Zero ends that. The server needs [Config.Faults].
func (s *Server) SlowDisk(longer time.Duration) { s.setFault(faultsFlush, longer) }

// ShiftClock sets the calendar's clock of the server to so much after that of the machine, or before it if ahead is
// negative, that of a server that is restarted too. Zero ends that. Clocks that count from the start of the machine are
// not touched. The server needs [Config.Faults].
func (s *Server) ShiftClock(ahead time.Duration) { s.setFault(faultsShift, ahead) }

func (s *Server) setFault(place int64, d time.Duration) {
	if s.faults == nil {
		panic("dbtest: the server was not started with Config.Faults")
	}
	if _, err := s.faults.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), place); err != nil {
		panic(fmt.Sprintf("dbtest: %v", err)) // its folder is gone
	}
}
