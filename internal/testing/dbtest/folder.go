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

// Config says how to start a server for one test alone, which is never one from the environment. The zero Config is
// fine. PostgreSQL and MariaDB flush at each commit, but not in tests; Redis keeps nothing on disk.
type Config struct {
	// Data is the folder for the server's data, for example the Path of a [Disk]. Logs, sockets and
	// temporary files are elsewhere. Empty: a folder that is removed with the server.
	Data string
	// Log is the folder for the write-ahead log of a PostgreSQL, in files of 1 MB. Empty: the log is with the data.
	Log string
	// Faults makes SlowDisk and ShiftClock available. They need glibc, and gcc, which is installed if it is missing.
	// The server flushes its files then, also in tests.
	Faults bool
	// Args are further options of the server's program.
	Args []string
}

func (c *Config) Postgres(ctx context.Context) (s *Server, err error) {
	defer returnFailure(&err)
	return c.startPostgres(ctx, postgresPrograms(), nil), nil
}

// MariaDB starts a MariaDB, or a MySQL where that is the engine to test with.
func (c *Config) MariaDB(ctx context.Context) (s *Server, err error) {
	defer returnFailure(&err)
	return newFlavour().start(ctx, c), nil
}

func (c *Config) Redis(ctx context.Context) (s *Server, err error) {
	defer returnFailure(&err)
	return c.startRedis(ctx, false), nil
}

// chown gives a file to the owner of the folder.
func (f *folder) chown(path string) {
	if f.owner != nil {
		check(os.Chown(path, int(f.owner.Uid), int(f.owner.Gid)))
	}
}

// folder holds the files of a server or a cluster. They belong to the user who runs it.
type folder struct {
	path   string
	data   string              // folder of the server's data: path, unless Config.Data says otherwise
	log    string              // folder of PostgreSQL's write-ahead log; empty: the log is with the data
	faults *os.File            // control file of the fault library: see faults.go
	env    []string            // further environment variables of commands
	owner  *syscall.Credential // nil: the present user
	user   string              // the name by which owner was looked up
	lock   *os.File            // held for as long as this process uses the folder

	network *Network // of the servers; nil: the loopback device
}

// lockFile is locked (flock) by the process that uses a folder. The lock ends with the process, however that ends.
// Unlike a process id in a file, it cannot be mistaken for the lock of another process.
const lockFile = "headgate.lock"

// folder makes and locks a folder for a server. Its owner is the present user, or if that is root, the given user, or
// nobody if there is no such user. It removes the folders of processes that have ended.
func (c *Config) folder(kind, user string) *folder {
	owner := credentialOf(user)
	sweepLeftovers()
	dir := must(os.MkdirTemp("", "headgate-"+kind+"-"))
	f := &folder{path: dir, data: dir, owner: owner, user: user}
	defer onFailure(f.remove)
	f.lock = openAndLock(filepath.Join(dir, lockFile))
	f.chown(dir)
	for parent, path := range map[string]*string{c.Data: &f.data, c.Log: &f.log} {
		if parent != "" {
			*path = must(os.MkdirTemp(parent, kind+"-"))
			f.chown(*path)
		}
	}
	if c.Faults {
		f.prepareFaults()
	}
	return f
}

// templates are folders with the files of a server that has never run, by the program that made them. A later process
// removes them: see sweepLeftovers.
var templates = struct {
	sync.Mutex
	byProgram map[string]*folder
}{byProgram: map[string]*folder{}}

// copyTemplate puts the files of an empty server into the folder data. create makes them once in this process: a copy
// takes a tenth of the three seconds of mariadb-install-db.
func (f *folder) copyTemplate(ctx context.Context, program, data string, create func(f *folder, data string)) {
	templates.Lock()
	defer templates.Unlock()
	template := templates.byProgram[program]
	if template == nil || pathFinder(template.path)() == "" { // it may have been in a folder that a test has removed
		template = new(Config).folder("empty", f.user)
		defer onFailure(template.remove)
		create(template, filepath.Join(template.path, "data"))
		templates.byProgram[program] = template
	}
	f.run(ctx, "", "cp", "-a", filepath.Join(template.path, "data"), data)
}

func (f *folder) remove() {
	for _, path := range []string{f.path, f.data, f.log} {
		os.RemoveAll(path)
	}
	for _, file := range []*os.File{f.lock, f.faults} {
		if file != nil {
			file.Close()
		}
	}
}

// command returns a command that runs in the folder, as the owner of the folder, and dies with this process.
func (f *folder) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = f.path
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.owner, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC", "HOME="+f.path, "TMPDIR="+f.path)
	cmd.Env = append(cmd.Env, f.env...)
	return cmd
}

// run runs a command with a standard input, and waits for its end.
func (f *folder) run(ctx context.Context, stdin, name string, args ...string) {
	cmd := f.command(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		check(fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, tail(string(out), 60)))
	}
}

// sweepLeftovers removes the folders of processes that have ended. A test process has no hook for its end: its servers
// die with it, but their files stay.
func sweepLeftovers() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), "headgate-*", lockFile))
	for _, path := range locks {
		// A folder that is being made is not locked yet.
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

// credentialOf returns the credential with which to run a server: nil for the present user, or if that is root, the
// named user or nobody.
func credentialOf(name string) *syscall.Credential {
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
