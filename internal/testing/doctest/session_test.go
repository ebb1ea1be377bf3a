package doctest

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

// TestMain lets 8 tests run at a time, whatever the number of processors, unless -parallel says how many:
// they wait for other programs most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	isSet := false
	flag.Visit(func(f *flag.Flag) { isSet = isSet || f.Name == "test.parallel" })
	if !isSet {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	leaktest.Main(m)
}

// maxBlockTime is how long one block may take.
const maxBlockTime = 5 * time.Minute

// prelude redefines commands in a session: headgate serve replaces an earlier server, and returns once it listens; go
// run ./cmd/headgate runs the program that is built already; git clone of Headgate's URL copies the project's folder.
const prelude = `set -eo pipefail
server=
headgate() {
  if [ "$1" != serve ]; then command headgate "$@"; return; fi
  if [ -n "$server" ]; then kill $server 2>/dev/null || true; wait $server || true; fi
  command headgate "$@" >.serve.log 2>&1 &
  server=$!
  for i in $(seq 300); do
    if grep -q 'headgate listens on' .serve.log; then cat .serve.log; return 0; fi
    if ! kill -0 $server 2>/dev/null; then break; fi
    sleep 0.1
  done
  cat .serve.log; return 1
}
go() {
  case "$1 $2" in
  'run ./cmd/headgate') shift 2; headgate "$@" ;;
  *) command go "$@" ;;
  esac
}
git() {
  if [ "$1 $2" != 'clone https://github.com/headgate/headgate' ]; then command git "$@"; return; fi
  mkdir headgate
  tar -C "$HEADGATE_DOC_ROOT" --exclude=./.git --exclude=./bin --exclude=./dist -cf - . | tar -C headgate -xf -
}
`

// backgroundServer matches a command that starts a server in the background. It is replaced by the command without &,
// since the prelude starts every server in the background, and sets $!.
var backgroundServer = regexp.MustCompile(`(?m)^(headgate serve\b.*) &$`)

// session is a shell in a folder of its own, which keeps its variables from one block to the next.
type session struct {
	dir         string
	stdin       io.Writer
	lines       chan string // its output
	scriptCount int         // how many scripts have run
	failed      bool        // no more scripts can run: a command failed, a block took too long, or the shell ended
}

// newSession starts a shell whose PATH begins with a folder of programs.
func newSession(t *testing.T, programs string, env ...string) *session {
	t.Helper()
	s := &session{dir: t.TempDir(), lines: make(chan string, 1000)}
	cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc")
	cmd.Dir = s.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HEADGATE_") && !strings.HasPrefix(v, "PG") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+programs+":"+os.Getenv("PATH"), "HOME="+s.dir, "LC_ALL=C.UTF-8", "TZ=UTC",
		"PAGER=cat", "HEADGATE_DEADLINE=10s", "PSQLRC=/dev/null", "CURL_HOME="+s.dir, "PYTHONDONTWRITEBYTECODE=1",
		"HEADGATE_DOC_ROOT="+absolute(root))
	for _, folder := range []string{"GOCACHE", "GOMODCACHE"} { // their defaults depend on HOME
		cmd.Env = append(cmd.Env, folder+"="+goEnv(t, folder))
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // and its servers
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	outReader, outWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr, s.stdin = outWriter, outWriter, stdin
	// curl fails the block if the answer is an error.
	writeFile(t, filepath.Join(s.dir, ".curlrc"), "silent\nshow-error\nfail-with-body\n")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	outWriter.Close()
	go func() {
		defer close(s.lines)
		for r := bufio.NewReader(outReader); ; {
			line, err := r.ReadString('\n')
			if line != "" {
				s.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		outReader.Close()
	})
	if out, err := s.run(prelude); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

// goEnv returns a setting of the go command.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// run runs a script in the session and returns what it prints. After a command that fails the session is over.
func (s *session) run(script string) (out string, err error) {
	if s.failed {
		return "", fmt.Errorf("the session is over: a block before has failed")
	}
	s.scriptCount++
	name := fmt.Sprintf(".block-%d.sh", s.scriptCount)
	endMark := fmt.Sprintf("end of %s", name)
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(script), 0o600); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(s.stdin, "source ./%s </dev/null; echo; echo '%s'\n", name, endMark); err != nil {
		s.failed = true
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxBlockTime)
	defer cancel()
	for {
		select {
		case line, ok := <-s.lines:
			switch {
			case !ok:
				s.failed = true
				return out, fmt.Errorf("a command has failed")
			case line == endMark+"\n":
				return strings.TrimSuffix(out, "\n"), nil
			}
			out += line
		case <-ctx.Done():
			s.failed = true
			return out, fmt.Errorf("it takes longer than %s", maxBlockTime)
		}
	}
}

func TestSessionKeepsVariablesAndEndsWithAFailure(t *testing.T) {
	t.Parallel()
	s := newSession(t, t.TempDir())
	for _, c := range []struct{ script, want string }{
		{"export A=1\necho x", "x\n"},
		{"echo -n $A", "1"},
		{"echo y >&2; false || true", "y\n"},
	} {
		if got, err := s.run(c.script); got != c.want || err != nil {
			t.Errorf("%s: got %q, error %v; want %q, nil", c.script, got, err, c.want)
		}
	}
	if got, err := s.run("echo a\nfalse\necho b"); got != "a\n" || err == nil {
		t.Errorf("got %q, error %v; want %q and an error", got, err, "a\n")
	}
	if _, err := s.run("true"); err == nil {
		t.Error("the session goes on after a failure")
	}
	for script, want := range map[string]string{
		"a &\nheadgate serve --config x.yaml &\n": "a &\nheadgate serve --config x.yaml\n",
		"headgate take a b &\n":                   "headgate take a b &\n",
	} {
		if got := backgroundServer.ReplaceAllString(script, "$1"); got != want {
			t.Errorf("%q: got %q, want %q", script, got, want)
		}
	}
}
