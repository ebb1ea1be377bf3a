package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says how to start a server that belongs to a test alone: it is never one of the environment. The zero
// Config is fine. A PostgreSQL and a MariaDB flush at each commit, but not in a test; a Redis keeps nothing on disk.
type Config struct {
	// Data is the folder for the server's data, for example the Path of a [Disk]. Logs, sockets and
	// temporary files are elsewhere. Empty: a folder that is removed with the server.
	Data string
	// Log is the folder for the write-ahead log of a PostgreSQL, in files of 1 MB. Empty: it is with the data.
	Log string
	// Faults lets SlowDisk and ShiftClock of the server work. They need a glibc, and gcc, which is installed
	// if need be. The server flushes its files then, also in tests.
	Faults bool
	// Args are further options of the server's program.
	Args []string
}

// Postgres starts a PostgreSQL.
func (c *Config) Postgres(ctx context.Context) (s *Server, err error) {
	defer rescue(&err)
	return c.startPostgres(ctx, postgresPrograms(), nil), nil
}

// MariaDB starts a MariaDB, or a MySQL where that is the engine to test with.
func (c *Config) MariaDB(ctx context.Context) (s *Server, err error) {
	defer rescue(&err)
	return newFlavour().start(ctx, c), nil
}

// Redis starts a Redis.
func (c *Config) Redis(ctx context.Context) (s *Server, err error) {
	defer rescue(&err)
	return c.startRedis(ctx, false), nil
}

// own makes the folder's owner that of a file.
func (f *folder) own(path string) {
	if f.owner != nil {
		do(os.Chown(path, int(f.owner.Uid), int(f.owner.Gid)))
	}
}

// folder holds the files of a server, or of a cluster, which belong to whom it
// runs as.
type folder struct {
	path   string
	data   string              // where the server's data are: path, unless Config.Data says otherwise
	log    string              // where PostgreSQL's write-ahead log is; empty: with the data
	faults *os.File            // says to servers how slow they are: see faults.go
	more   []string            // variables of its commands' environment
	owner  *syscall.Credential // nil: the present user
	user   string              // by which name it was looked for
	lock   *os.File            // held for as long as this process uses the folder

	network *Network // of the servers; nil: the loopback device
}

// lockFile is locked (flock) by the process that uses a folder. The lock ends
// with the process, however it ends: unlike a process id in a file, it cannot
// be mistaken for that of another.
const lockFile = "headgate.lock"

// folder makes a folder for a server, owned by a user, by nobody if there is no such user, or by the present one
// unless that is root.
func (c *Config) folder(kind, user string) *folder {
	owner := unprivileged(user)
	sweepLeftovers()
	dir := get(os.MkdirTemp("", "headgate-"+kind+"-"))
	f := &folder{path: dir, data: dir, owner: owner, user: user}
	defer undo(f.remove)
	f.lock = locked(filepath.Join(dir, lockFile))
	f.own(dir)
	for in, path := range map[string]*string{c.Data: &f.data, c.Log: &f.log} {
		if in != "" {
			*path = get(os.MkdirTemp(in, kind+"-"))
			f.own(*path)
		}
	}
	if c.Faults {
		f.prepareFaults()
	}
	return f
}

// empties are folders with the files of a server that has never run, by how they were made. They end with the process.
var empties = struct {
	sync.Mutex
	made map[string]*folder
}{made: map[string]*folder{}}

// fill puts the files of an empty server into the folder data. make makes them once in this process: a copy takes a
// tenth of the three seconds of mariadb-install-db.
func (f *folder) fill(ctx context.Context, how, data string, make func(f *folder, data string)) {
	empties.Lock()
	defer empties.Unlock()
	from := empties.made[how]
	if from == nil || existing(from.path)() == "" { // it may have been in a folder that a test has removed
		from = new(Config).folder("empty", f.user)
		defer undo(from.remove)
		make(from, filepath.Join(from.path, "data"))
		empties.made[how] = from
	}
	f.run(ctx, "", "cp", "-a", filepath.Join(from.path, "data"), data)
}

func (f *folder) remove() {
	for _, path := range []string{f.path, f.data, f.log} {
		os.RemoveAll(path)
	}
	for _, open := range []*os.File{f.lock, f.faults} {
		if open != nil {
			open.Close()
		}
	}
}

// command returns a command in the folder, as its owner, which dies with us.
func (f *folder) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = f.path
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.owner, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC", "HOME="+f.path, "TMPDIR="+f.path)
	cmd.Env = append(cmd.Env, f.more...)
	return cmd
}

// run runs a command to its end, which reads a text.
func (f *folder) run(ctx context.Context, text, name string, args ...string) {
	cmd := f.command(ctx, name, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		do(fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, tail(string(out), 60)))
	}
}

// sweepLeftovers removes the folders of processes that are gone. A test process
// has no hook for its end: its servers die with it, their files stay.
func sweepLeftovers() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), "headgate-*", lockFile))
	for _, path := range locks {
		// One that is being made is not locked yet.
		info, err := os.Stat(path)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		lock.Close()
	}
}

// unprivileged returns whom to run a server as: nil for the present user, who
// must not be root.
func unprivileged(name string) *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{name, "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	panic(failure{errors.New("database servers do not run as root, and there is no user to run them as")})
}
