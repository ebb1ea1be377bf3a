package client_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/rpc"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// protocol is the protocol between client and server in a test: http or grpc.
type protocol string

// overEachProtocol runs a test over http and over grpc, as parallel subtests.
func overEachProtocol(t *testing.T, test func(t *testing.T, proto protocol)) {
	t.Helper()
	for _, proto := range []protocol{"http", "grpc"} {
		t.Run(string(proto), func(t *testing.T) {
			t.Parallel()
			test(t, proto)
		})
	}
}

// serverOptions describe a server over memory. Zero: the constant limits, without tokens and TLS, over TCP.
type serverOptions struct {
	file        string         // text of the config
	storeNames  bool           // the catalog in the store has the limits of the config
	beforeBatch func([]law.Op) // called before each batch of the store
	afterBatch  func()         // called after each batch
	tokens      *auth.File
	tls         *tls.Config
	socket      string // path of a Unix socket
	clock       store.Clock
}

// testServer is a running server.
type testServer struct {
	url      string
	listener *breakableListener
	close    func() // stops the server, and ends all connections at once
}

// storeCatalog applies a config to the catalog of a store, and returns that catalog.
func storeCatalog(tb testing.TB, s store.Store, file *config.Config) *catalog.Catalog {
	tb.Helper()
	c, err := catalog.Read(tb.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	_, _, err = c.Apply(tb.Context(), catalog.By{Author: "file"}, file.CatalogFile(), catalog.ApplyOnce)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// serve starts a server that runs until the end of the test.
func (p protocol) serve(tb testing.TB, o serverOptions) *testServer {
	tb.Helper()
	if o.file == "" {
		o.file = limits
	}
	names, err := config.Parse("c.yaml", []byte(o.file))
	if err != nil {
		tb.Fatal(err)
	}
	var st store.Store = memory.New(&memory.Config{Names: true, Clock: o.clock})
	if o.beforeBatch != nil || o.afterBatch != nil {
		st = &hookedStore{st, o.beforeBatch, o.afterBatch}
	}
	verbs := service.New(headgate.New(st, &headgate.Config{Names: names}), names, nil)
	if o.storeNames {
		storedNames := storeCatalog(tb, st, names)
		verbs = service.New(headgate.New(st, &headgate.Config{Names: storedNames}), names, storedNames)
	}
	network, address := "tcp", "127.0.0.1:0"
	if o.socket != "" {
		network, address = "unix", o.socket
	}
	l, err := new(net.ListenConfig).Listen(tb.Context(), network, address)
	if err != nil {
		tb.Fatal(err)
	}
	s := &testServer{listener: &breakableListener{Listener: l}}
	scheme := string(p)
	if p == "grpc" {
		server := rpc.New(verbs, slog.New(slog.DiscardHandler), &rpc.Config{Tokens: o.tokens, TLS: o.tls})
		done := make(chan error, 1)
		go func() { done <- server.Serve(s.listener) }()
		s.close = sync.OnceFunc(func() {
			_ = server.Close()
			if err := <-done; err != nil {
				tb.Error(err)
			}
		})
	} else {
		server := httptest.NewUnstartedServer(
			rest.New(verbs, slog.New(slog.DiscardHandler), &rest.Config{Tokens: o.tokens}))
		server.Listener.Close()
		server.Listener, server.TLS = s.listener, o.tls
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		if o.tls != nil {
			server.StartTLS()
		} else {
			server.Start()
		}
		s.close = sync.OnceFunc(func() { server.CloseClientConnections(); server.Close() })
	}
	tb.Cleanup(s.close)
	if o.tls != nil {
		scheme += "s"
	}
	s.url = scheme + "://" + l.Addr().String()
	if o.socket != "" {
		s.url = strings.TrimPrefix(string(p)+"+unix:"+o.socket, "http+")
	}
	return s
}

// client returns a client of the server. The client is closed at the end of the test.
func (s *testServer) client(tb testing.TB, cfg *client.Config) *client.Client {
	tb.Helper()
	c, err := client.New(s.url, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// hookedStore is a store that calls functions before and after each batch.
type hookedStore struct {
	store.Store
	beforeBatch func([]law.Op)
	afterBatch  func()
}

// Apply implements store.Store.
func (h *hookedStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if h.beforeBatch != nil {
		h.beforeBatch(ops)
	}
	err := h.Store.Apply(ctx, ops, outs)
	if h.afterBatch != nil {
		h.afterBatch()
	}
	return err
}

// breakableListener is a listener whose connections a test can close.
type breakableListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

// Accept implements net.Listener.
func (b *breakableListener) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.conns = append(b.conns, conn)
	}
	return conn, err
}

// countAccepted returns how many connections it has accepted.
func (b *breakableListener) countAccepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

// closeConns closes all connections that it has accepted.
func (b *breakableListener) closeConns() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		_ = c.Close()
	}
}
