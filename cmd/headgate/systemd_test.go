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

// fakeManager is a service manager that receives what a server writes to NOTIFY_SOCKET.
type fakeManager struct {
	path     string
	messages chan string
}

func newFakeManager(t *testing.T) *fakeManager {
	t.Helper()
	m := &fakeManager{path: filepath.Join(t.TempDir(), "notify"), messages: make(chan string, 1000)}
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
func (m *fakeManager) next(t *testing.T, s *server) string {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the server says %q", s.out.String())
		}
	}()
	for {
		if text := await.Receive(t, "a message to the manager", m.messages); text != "WATCHDOG=1" {
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
	m := newFakeManager(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "headgate.yaml")
	replaceFile(t, file, "limits: {login: fixed-window 5/1h}\n")
	s := newServer(t, dir, "--config", file)
	s.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=200000")
	s.startProcess(t)
	if got, want := m.next(t, s), "STATUS=the state is in "+filepath.Join(dir, "headgate.db"); got != want {
		t.Errorf("the first message is %q, want %q", got, want)
	}
	if got := m.next(t, s); got != "READY=1" {
		t.Errorf("the second message is %q, want READY=1", got)
	}
	s.waitUntil(t, "that it listens", s.listens)
	if err := checkLive(s.url); err != nil {
		t.Errorf("after READY=1 the server does not answer: %v", err)
	}
	for range 3 { // the server sends two in 200 ms
		if text := await.Receive(t, "a sign of life", m.messages); text != "WATCHDOG=1" {
			t.Errorf("got %q, want WATCHDOG=1", text)
		}
	}

	replaceFile(t, file, "limits: {login: fixed-window 6/1h}\n")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if got := m.next(t, s); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=\d+\n$`).MatchString(got) {
		t.Errorf("after SIGHUP the message is %q, want RELOADING=1", got)
	}
	if got := m.next(t, s); got != "READY=1" {
		t.Errorf("after the file was read the message is %q, want READY=1", got)
	}
	if got := s.limits(t)["login"]; !strings.Contains(got, "6/1h") {
		t.Errorf("after the second READY=1 the limit is %q, want 6/1h", got)
	}
	s.stop(t)
	if got := m.next(t, s); got != "STOPPING=1" {
		t.Errorf("at the end the message is %q, want STOPPING=1", got)
	}
}

// TestServiceManagerStatusWhileTheStoreIsAway checks that a server without its store sends READY=1, and why in STATUS.
func TestServiceManagerStatusWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	m := newFakeManager(t)
	s := newServer(t, t.TempDir(), "--store", "redis://127.0.0.1:1/0") // nothing listens there
	s.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path)
	s.startProcess(t)
	for ready, hasStatus := false, false; !ready || !hasStatus; { // in either order
		text := m.next(t, s)
		ready = ready || strings.HasPrefix(text, "READY=1")
		hasStatus = hasStatus || strings.HasPrefix(text, "STATUS=the store is not available: ")
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

// TestSocketActivation checks that a server answers on sockets that were opened before it started, and that connections
// wait for the next server.
func TestSocketActivation(t *testing.T) {
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
		requestErr := make(chan error, 1)
		go func() { requestErr <- checkLive(url) }() // there is no server yet, and the connection waits
		s := newServer(t, t.TempDir(), "--store", "memory:", "--metrics", "127.0.0.1:1")
		s.passSockets(t, names, tcp, unix)
		s.startProcess(t)
		if err := <-requestErr; err != nil {
			t.Fatalf("%s: a request from before the start: %v; the server says %q", names, err, s.out.String())
		}
		s.waitUntil(t, "that it listens", s.listens)
		if s.url != url {
			t.Errorf("%s: the server listens on %s, want %s", names, s.url, url)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /metrics HTTP/1.0\r\n\r\n")
		answer := make([]byte, 12)
		if _, err := conn.Read(answer); err != nil || string(answer) != "HTTP/1.0 200" {
			t.Errorf("%s: the socket of the metrics answers %q, %v, want HTTP/1.0 200", names, answer, err)
		}
		conn.Close()
		s.stop(t)
	}
}

// TestSocketActivationErrors checks that a server exits with an error if it cannot use its sockets.
func TestSocketActivationErrors(t *testing.T) {
	t.Parallel()
	loopback, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer loopback.Close()
	allAddresses, err := net.ListenTCP("tcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer allAddresses.Close()
	type socket = interface{ File() (*os.File, error) }
	for _, tt := range []struct {
		names    string
		sockets  []socket
		wantText string
	}{
		{
			"htp",
			[]socket{loopback},
			`FileDescriptorName: "htp" is not the name of an address; known are http, grpc, resp, admin, metrics`,
		},
		{"a.socket:b.socket", []socket{loopback, loopback}, "the sockets a.socket and b.socket have no name"},
		{"http", []socket{allAddresses}, "can be reached from other machines"},
	} {
		s := newServer(t, t.TempDir(), "--store", "memory:")
		s.passSockets(t, tt.names, tt.sockets...)
		s.startProcess(t)
		<-s.outputDone
		var exit *exec.ExitError
		if err := s.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitError ||
			!strings.Contains(s.out.String(), tt.wantText) {
			t.Errorf("%s: got %v, %q, want exit %d, %q", tt.names, err, s.out.String(), exitError, tt.wantText)
		}
	}
}
