package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// output collects a server's output.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// readNew returns the output since the last readNew.
func (o *output) readNew() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.text.Reset()
	return o.text.String()
}

// testServer is a server in this process, whose store is in memory and whose config file is a text.
type testServer struct {
	url    string
	client http.Client
	log    output
	hangup chan os.Signal
	stop   context.CancelFunc
	served chan error // receives the error of Serve

	mu   sync.Mutex
	file string
}

// write replaces the text of the config file.
func (s *testServer) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = text
}

// read returns the text of the config file.
func (s *testServer) read(string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []byte(s.file), nil
}

// startServer starts a server with the text of a config file, and flags such as "grpc=127.0.0.1:0".
func startServer(t *testing.T, file string, flags ...string) *testServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{
		url: "http://" + l.Addr().String(), hangup: make(chan os.Signal, 1), served: make(chan error, 1), file: file,
		client: http.Client{Transport: &http.Transport{}},
	}
	c := Config{
		ReadFile: s.read, Log: &s.log, Hangup: s.hangup, Sockets: map[string][]net.Listener{"http": {l}},
		Pauses: Pauses{Reload: time.Millisecond, Catalog: time.Millisecond},
		Flags: func(name string) (string, bool) {
			for _, flag := range append(flags, "store=memory:", "deadline=1m") {
				if value, ok := strings.CutPrefix(flag, name+"="); ok {
					return value, true
				}
			}
			return "", false
		},
	}
	if c.File, err = config.ReadWith(s.read, "headgate.yaml"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.served <- Serve(ctx, c) }()
	t.Cleanup(func() { stop(); s.client.CloseIdleConnections() })
	return s
}

// take sends a request to take. The listener queues it until the server serves.
func (s *testServer) take(t *testing.T, limit, key string) (d api.Decision, status int) {
	t.Helper()
	body, err := json.Marshal(api.Request{Charge: api.Charge{Limit: limit, Key: key}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/take", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d, res.StatusCode
}

// TestServe sends requests, changes the limit in the config file, and stops the server.
func TestServe(t *testing.T) {
	t.Parallel()
	s := startServer(t, "limits: {login: fixed-window 1/30d}\n")
	for i, want := range []bool{true, false} {
		if d, status := s.take(t, "login", "alice"); status != http.StatusOK || d.Allowed != want {
			t.Errorf("request %d: status %d, %+v, want %t", i, status, d, want)
		}
	}
	s.write("limits: {login: fixed-window 3/30d}\n")
	s.hangup <- syscall.SIGHUP
	await.Until(t, "the greater limit", func() bool { d, _ := s.take(t, "login", "bob"); return d.Capacity.String() == "3" })
	if d, _ := s.take(t, "login", "alice"); !d.Allowed {
		t.Errorf("alice after the change: %+v, want allowed", d)
	}
	s.stop()
	if err := await.Receive(t, "the end", s.served); err != nil {
		t.Error(err)
	}
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "http://"), time.Second); err == nil {
		t.Error("the server listens after its end")
	}
	if log := s.log.String(); !strings.Contains(log, "headgate listens on "+s.url) || !strings.Contains(log, "stopping") {
		t.Errorf("got the log %q, want that the server listens and stops", log)
	}
}

// TestServeReturnsErrorsOfSettings checks that Serve returns an error about an invalid setting at once.
func TestServeReturnsErrorsOfSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ setting, want string }{
		{"store=ftp://db", `the scheme "ftp" is not known`},
		{"tls-cert=a.pem", "tls_cert: and tls_key stand together"},
		{"deadline=soon", "deadline"},
		{"envoy-headers=draft", "envoy: is missing"},
		{"notify-url=https://ops.example", "notify_url: and notify_secret stand together"},
		{"notify-url=ops.example", "notify-url: is not a URL such as https://example.com/hook"},
		{"notify-url=http://:80", "notify-url: is not a URL such as https://example.com/hook"},
		{"notify-url=ftp://ops:secret@example.com", "notify-url: is not a URL such as https://example.com/hook"},
	} {
		s := startServer(t, "{}\n", tt.setting)
		err := await.Receive(t, tt.setting, s.served)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.setting, err, tt.want)
		}
	}
}
