package run

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
)

// notify reports the state of this server to the service manager, if there is a NOTIFY_SOCKET.
func notify(log *slog.Logger, lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		log.Warn("the service manager cannot be told", "message", strings.Join(lines, " "), "error", err)
	}
}

// watchdog sends the service manager's watchdog a message twice in its timeout, until ctx is done. It calls neither the
// store nor the addresses: a restart does not help a server whose store is away, or that has more connections than it
// can serve.
func watchdog(ctx context.Context, log *slog.Logger) {
	timeout, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the service manager's watchdog is not answered", "error", err)
		return
	}
	if timeout <= 0 {
		return
	}
	ticker := time.NewTicker(max(timeout/2, time.Millisecond))
	defer ticker.Stop()
	for {
		notify(log, daemon.SdNotifyWatchdog)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// addresses are the settings with the addresses to listen on.
var addresses = []config.Setting{config.HTTP, config.GRPC, config.RESP, config.Admin, config.Metrics}

// Sockets returns the listeners that the service manager has opened, for Config.Sockets. They accept connections while
// no server runs, so that a restart refuses none. A socket that is not named like a setting is headgate.ErrInvalid.
func Sockets() (map[string][]net.Listener, error) {
	listeners := map[string][]net.Listener{}
	unnamed := ""
	names := make([]string, len(addresses))
	for i, s := range addresses {
		names[i] = s.Name
	}
	for _, f := range activation.Files(true) {
		name := f.Name()
		switch {
		case slices.Contains(names, name):
		case !isUnnamed(name):
			return nil, headgate.Invalid("FileDescriptorName", "%q is not the name of an address; known are %s", name,
				strings.Join(names, ", "))
		case unnamed != "" && unnamed != name:
			return nil, headgate.Invalid("FileDescriptorName", "the sockets %s and %s have no name; name them %s",
				unnamed, name, strings.Join(names, ", "))
		default:
			unnamed, name = name, config.HTTP.Name
		}
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("the socket %s of the service manager: %w", f.Name(), err)
		}
		f.Close()
		listeners[name] = append(listeners[name], l)
	}
	return listeners, nil
}

// isUnnamed reports whether a name is a socket's default name: the name of its unit with systemd, or none.
func isUnnamed(name string) bool {
	return strings.HasSuffix(name, ".socket") || name == "unknown" || strings.HasPrefix(name, "LISTEN_FD_")
}
