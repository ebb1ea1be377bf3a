package edge_test

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// failingListener is a listener whose Accept returns each of errs once, and then connections.
type failingListener struct {
	net.Listener
	errs []error
}

func (l *failingListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	client, server := net.Pipe()
	_ = client.Close()
	return server, nil
}

// TestAListenerSurvivesALackOfFileDescriptors checks that Accept goes on after EMFILE, but not after ErrClosed.
func TestAListenerSurvivesALackOfFileDescriptors(t *testing.T) {
	t.Parallel()
	emfile := &net.OpError{Op: "accept", Err: syscall.EMFILE}
	l := edge.BoundListener(&failingListener{errs: []error{emfile, emfile, emfile}}, 0, slog.New(slog.DiscardHandler))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	l = edge.BoundListener(&failingListener{errs: []error{net.ErrClosed}}, 0, slog.New(slog.DiscardHandler))
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: got %v, want %v", err, net.ErrClosed)
	}
}
