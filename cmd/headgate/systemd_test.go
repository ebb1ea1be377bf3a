package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
)

// manager is a service manager's end of NOTIFY_SOCKET.
type manager struct {
	path     string
	messages chan string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{path: filepath.Join(t.TempDir(), "notify"), messages: make(chan string, 1000)}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for text := make([]byte, 4096); ; {
			n, err := conn.Read(text)
			if err != nil {
				return
			}
			m.messages <- string(text[:n])
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
	return m
}

// next returns the next message that is not a watchdog message.
func (m *manager) next(t *testing.T, s *server) string {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the server says %q", s.out.String())
		}
	}()
	for {
		if text := await.Receive(t, "what the manager is told", m.messages); text != "WATCHDOG=1" {
			return text
		}
	}
}

// checkLive returns nil if /livez of a server answers with 200.
func checkLive(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/livez", nil)
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// TestServiceManagerNotifications follows the messages to systemd from the start of a server to its end.
func TestServiceManagerNotifications(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "headgate.yaml")
	write(t, file, "limits: {login: fixed-window 5/1h}\n")
	s := newServer(t, dir, "--config", file)
	s.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=200000")
	s.startProcess(t)
	if got, want := m.next(t, s), "STATUS=the state is in "+filepath.Join(dir, "headgate.db"); got != want {
		t.Errorf("first it is told %q, want %q", got, want)
	}
	if got := m.next(t, s); got != "READY=1" {
		t.Errorf("then it is told %q, want READY=1", got)
	}
	s.waitUntil(t, "that it listens", s.listens)
	if err := checkLive(s.url); err != nil {
		t.Errorf("it is ready, and does not answer: %v", err)
	}
	for range 3 { // twice in 200 ms
		if text := await.Receive(t, "a sign of life", m.messages); text != "WATCHDOG=1" {
			t.Errorf("without a reason it is told %q", text)
		}
	}

	write(t, file, "limits: {login: fixed-window 6/1h}\n")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if got := m.next(t, s); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=\d+\n$`).MatchString(got) {
		t.Errorf("after SIGHUP it is told %q", got)
	}
	if got := m.next(t, s); got != "READY=1" {
		t.Errorf("after the file was read it is told %q, want READY=1", got)
	}
	if got := s.limits(t)["login"]; !strings.Contains(got, "6/1h") {
		t.Errorf("it is ready again, and the limit is %q", got)
	}
	s.stop(t)
	if got := m.next(t, s); got != "STOPPING=1" {
		t.Errorf("at the end it is told %q, want STOPPING=1", got)
	}
}

// TestServiceManagerStatusWhileTheStoreIsAway: the server is ready all the same, since its limits say what it answers.
func TestServiceManagerStatusWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	s := newServer(t, t.TempDir(), "--store", "redis://127.0.0.1:1/0") // nobody is there
	s.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path)
	s.startProcess(t)
	for ready, away := false, false; !ready || !away; { // in either order
		text := m.next(t, s)
		ready = ready || strings.HasPrefix(text, "READY=1")
		away = away || strings.HasPrefix(text, "STATUS=the store is not available: ")
	}
	s.stop(t)
}

// passSockets gives a server sockets as systemd does: as files from 3 on, with their names in the environment.
func (s *server) passSockets(t *testing.T, names string, listeners ...interface{ File() (*os.File, error) }) {
	t.Helper()
	for _, l := range listeners {
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		s.cmd.ExtraFiles = append(s.cmd.ExtraFiles, f)
	}
	s.cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", len(listeners)), "LISTEN_FDNAMES="+names)
	s.cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", s.cmd.Path}, s.cmd.Args[1:]...)
	s.cmd.Path = "/bin/sh"
}

// TestSocketsOfTheServiceManager: a server answers on sockets that were opened before it started, and connections wait
// for the next server.
func TestSocketsOfTheServiceManager(t *testing.T) {
	t.Parallel()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	path := filepath.Join(t.TempDir(), "metrics")
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	url := "http://" + tcp.Addr().String()
	for _, names := range []string{"headgate.socket:metrics", "http:metrics"} {
		early := make(chan error, 1)
		go func() { early <- checkLive(url) }() // there is no server yet, and the connection waits
		s := newServer(t, t.TempDir(), "--store", "memory:", "--metrics", "127.0.0.1:1")
		s.passSockets(t, names, tcp, unix)
		s.startProcess(t)
		if err := <-early; err != nil {
			t.Fatalf("%s: a request from before the start: %v; the server says %q", names, err, s.out.String())
		}
		s.waitUntil(t, "that it listens", s.listens)
		if s.url != url {
			t.Errorf("%s: it listens on %s, want %s", names, s.url, url)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /metrics HTTP/1.0\r\n\r\n")
		answer := make([]byte, 12)
		if _, err := conn.Read(answer); err != nil || string(answer) != "HTTP/1.0 200" {
			t.Errorf("%s: the socket of the metrics: %q, %v", names, answer, err)
		}
		conn.Close()
		s.stop(t)
	}
}

// TestSocketsThatCannotBeServed: the server exits with an error.
func TestSocketsThatCannotBeServed(t *testing.T) {
	t.Parallel()
	loopback, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer loopback.Close()
	everywhere, err := net.ListenTCP("tcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer everywhere.Close()
	type socket = interface{ File() (*os.File, error) }
	for _, tt := range []struct {
		names   string
		sockets []socket
		says    string
	}{
		{
			"htp",
			[]socket{loopback},
			`FileDescriptorName: "htp" is not the name of an address; known are http, grpc, resp, admin, metrics`,
		},
		{"a.socket:b.socket", []socket{loopback, loopback}, "the sockets a.socket and b.socket have no name"},
		{"http", []socket{everywhere}, "can be reached from other machines"},
	} {
		s := newServer(t, t.TempDir(), "--store", "memory:")
		s.passSockets(t, tt.names, tt.sockets...)
		s.startProcess(t)
		<-s.over
		var exit *exec.ExitError
		if err := s.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitError ||
			!strings.Contains(s.out.String(), tt.says) {
			t.Errorf("%s: %v, %q", tt.names, err, s.out.String())
		}
	}
}
