package run

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store"
)

// welcome prints the server's addresses and a request to try. In a JSON log it writes a line with the addresses.
func (srv *server) welcome(log *slog.Logger, endpoints endpoints) {
	w := srv.Log
	if srv.logging.Format == config.JSON {
		attrs := []any{"store", store.RedactURL(srv.place.URL)}
		if file := srv.place.File(); file != "" {
			attrs = append(attrs, "file", file)
		}
		for _, d := range endpoints {
			attrs = append(attrs, d.setting.Name, d.listener.Addr().String())
		}
		log.Info("listening", attrs...)
		return
	}
	limit := "token-bucket 5/1m"
	if limits := srv.File.Limits; len(limits) > 0 {
		limit = limits[0].Name()
	}
	scheme := "http"
	if srv.tls != nil {
		scheme = "https"
	}
	addr := endpoints[0].listener.Addr()
	base, curl := scheme+"://"+addr.String(), "curl"
	if addr.Network() == "unix" {
		base, curl = "http://localhost", "curl --unix-socket "+addr.String()
		fmt.Fprintf(w, "headgate listens on the socket %s and keeps its state in %s\n\n", addr, srv.place)
	} else {
		fmt.Fprintf(w, "headgate listens on %s and keeps its state in %s\n\n", base, srv.place)
		if srv.tokens != nil {
			curl += ` -H "Headgate-Token: $HEADGATE_TOKEN"`
		}
	}
	fmt.Fprintf(w, "  %s -d '{\"limit\":\"%s\",\"key\":\"alice\"}' %s/v1/take\n\n", curl, limit, base)
	if addr.Network() != "unix" {
		fmt.Fprintf(w, "the page: %s/\n", base)
	}
	for _, d := range endpoints[1:] {
		fmt.Fprintf(w, "%s is on %s\n", d.setting.Name, d.listener.Addr())
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && srv.openAccess {
		fmt.Fprintln(w, "anyone who reaches this address can take, reset and block: let only your own clients reach it")
	}
}
