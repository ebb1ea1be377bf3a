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

// exhausted is a listener that fails a few times before it accepts.
type exhausted struct {
	net.Listener
	errs []error
}

func (l *exhausted) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	client, server := net.Pipe()
	_ = client.Close()
	return server, nil
}

// TestAListenerSurvivesALackOfFileDescriptors lets the process run out of files, and then fail for good.
func TestAListenerSurvivesALackOfFileDescriptors(t *testing.T) {
	t.Parallel()
	lack := &net.OpError{Op: "accept", Err: syscall.EMFILE}
	l := edge.Bound(&exhausted{errs: []error{lack, lack, lack}}, 0, slog.New(slog.DiscardHandler))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	l = edge.Bound(&exhausted{errs: []error{net.ErrClosed}}, 0, slog.New(slog.DiscardHandler))
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that was closed: %v", err)
	}
}
