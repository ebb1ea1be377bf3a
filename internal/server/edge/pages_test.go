package edge_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/edge"
)

// serve serves a handler on an address, and returns the address with the port, and the server.
func serve(t *testing.T, addr string, h http.Handler, c *edge.Config) (listenAddr string, s *edge.Server) {
	t.Helper()
	s = edge.NewServer(h, slog.New(slog.DiscardHandler), c)
	return listen(t, addr, s), s
}

// serveWithoutTimeout serves hello on a loopback address, and waits an hour for a header.
func serveWithoutTimeout(t *testing.T, c *edge.Config) (listenAddr string) {
	t.Helper()
	s := edge.NewServer(hello, slog.New(slog.DiscardHandler), c)
	s.SetReadHeaderTimeout(time.Hour)
	return listen(t, "127.0.0.1:0", s)
}

// listen serves until the test ends, and returns the address with the port.
func listen(t *testing.T, addr string, s *edge.Server) (listenAddr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil {
			_ = l.Close() // the test has left requests in flight
		}
		<-served
	})
	return l.Addr().String()
}

// hello answers all requests with 200.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

// request sends a request with a Host and headers such as "Origin: null".
func request(t *testing.T, method, addr, host string, headers ...string) (status int, text string, header http.Header) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+addr+"/v1/anything", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Host = host; host == "" {
		r.Host = addr
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %q: %v", method, host, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body), res.Header
}

// TestLinesAboutPagesAreShort checks that a refused page is logged in at most 3000 bytes, however long its header is.
func TestLinesAboutPagesAreShort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var log bytes.Buffer
	s := edge.NewServer(hello, slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil)), nil)
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	long := strings.Repeat("\xff", 15_000)
	for _, head := range []string{
		"POST / HTTP/1.1\r\nHost: " + strings.Repeat("a", 15_000) + "\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://" + long + "\r\n\r\n",
		"POST /" + strings.Repeat("%01", 5_000) + " HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: " + long[:100] +
			"\r\n\r\n",
	} {
		c := dial(t, l.Addr().String())
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		mu.Lock()
		if log.Len() == 0 || log.Len() > 3000 {
			t.Errorf("%.20q: status %d, %d bytes logged, want 1 to 3000: %.300s", head, res.StatusCode, log.Len(),
				log.String())
		}
		log.Reset()
		mu.Unlock()
	}
}

// writerFunc is an io.Writer that calls the function.
type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// TestOnALoopbackAddressTheHostMustBeKnown checks the hosts that are served on loopback and on wildcard addresses.
func TestOnALoopbackAddressTheHostMustBeKnown(t *testing.T) {
	t.Parallel()
	loopback, _ := serve(t, "127.0.0.1:0", hello, nil)
	listed, _ := serve(t, "127.0.0.1:0", hello,
		&edge.Config{Hosts: []string{"Gate.Example", "other.example:8080", "[2001:db8::1]"}})
	wildcard, _ := serve(t, ":0", hello, nil)
	_, port, _ := net.SplitHostPort(wildcard)
	wildcard = "127.0.0.1:" + port
	wildcardListed, _ := serve(t, ":0", hello, &edge.Config{Hosts: []string{"gate.example"}})
	_, port, _ = net.SplitHostPort(wildcardListed)
	wildcardListed = "127.0.0.1:" + port
	for _, tt := range []struct {
		host                                       string
		loopback, listed, wildcard, wildcardListed int
	}{
		{"localhost", 200, 200, 200, 200},
		{"localhost:8080", 200, 200, 200, 200},
		{"LocalHost:8080", 200, 200, 200, 200},
		{"localhost.:8080", 200, 200, 200, 200},
		{"127.0.0.1", 200, 200, 200, 200},
		{"127.0.0.1:1", 200, 200, 200, 200},
		{"192.0.2.7:8080", 200, 200, 200, 200},
		{"[::1]", 200, 200, 200, 200},
		{"[::1]:8080", 200, 200, 200, 200},
		{"[2001:DB8::7]:8080", 200, 200, 200, 200},
		{"gate.example", 421, 200, 200, 200},
		{"GATE.example.:443", 421, 200, 200, 200},
		{"other.example", 421, 200, 200, 421},
		{"rebind.evil", 421, 421, 200, 421},
		{"rebind.evil:8080", 421, 421, 200, 421},
		{"localhost.rebind.evil", 421, 421, 200, 421},
		{"notlocalhost", 421, 421, 200, 421},
		{"127.0.0.1.rebind.evil:8080", 421, 421, 200, 421},
		{"x.gate.example", 421, 421, 200, 421},
		{"headgate:8080", 421, 421, 200, 421},
		{"[::1.rebind.evil]:8080", 421, 421, 200, 421},
		{"1.2.3:80", 421, 421, 200, 421},
	} {
		for i, server := range []struct {
			addr string
			want int
		}{{loopback, tt.loopback}, {listed, tt.listed}, {wildcard, tt.wildcard}, {wildcardListed, tt.wildcardListed}} {
			for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS"} {
				status, text, header := request(t, method, server.addr, tt.host)
				if status != server.want {
					t.Errorf("%s as %q, server %d: status %d, want %d", method, tt.host, i, status, server.want)
				}
				if status == 421 && method == "POST" &&
					(!strings.Contains(text, "--host") || !strings.Contains(text, "Nothing was charged") ||
						header.Get("Content-Type") != "application/problem+json") {
					t.Errorf("%q: got %v %s, want a problem that names --host", tt.host, header, text)
				}
			}
		}
	}
}

// TestARequestWithoutAHostIsServed checks requests without a host, which no browser sends, and one of a whole URL.
func TestARequestWithoutAHostIsServed(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, "127.0.0.1:0", hello, nil)
	for text, want := range map[string]string{
		"GET / HTTP/1.0\r\n\r\n":                                                           "HTTP/1.0 200 OK",
		"GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n":                             "HTTP/1.1 200 OK",
		"GET http://rebind.evil/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n": "HTTP/1.1 421 Misdirected Request",
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, text)
		got, err := io.ReadAll(conn)
		if line, _, _ := strings.Cut(string(got), "\r\n"); err != nil || line != want {
			t.Errorf("%q: got %q, %v, want %q", text, line, err, want)
		}
	}
}

// TestPagesOfOtherOriginsAreRefused checks which requests of browsers are served, by the headers of their page.
func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, "127.0.0.1:0", hello, nil)
	for _, tt := range []struct {
		headers            string
		get, post, options int
	}{
		{"", 200, 200, 200}, // curl, and all other clients
		{"Sec-Fetch-Site: same-origin", 200, 200, 200},
		{"Sec-Fetch-Site: none", 200, 200, 200}, // typed by the user
		{"Sec-Fetch-Site: cross-site", 403, 403, 403},
		{"Sec-Fetch-Site: same-site", 403, 403, 403}, // such as localhost on another port
		{"Sec-Fetch-Site: cross-site|Origin: https://evil.example", 403, 403, 403},
		{"Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: no-cors|Sec-Fetch-Dest: image", 403, 403, 403},
		{"Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: iframe", 403, 403, 403},
		{"Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: document", 200, 403, 403}, // a link
		// browsers before 2023 send no Sec-Fetch-Site
		{"Origin: https://evil.example", 403, 403, 403},
		{"Origin: http://" + addr, 200, 200, 200},
		{"Origin: null", 403, 403, 403},
		{"Sec-Fetch-Site: same-origin|Origin: http://" + addr, 200, 200, 200},
		{"Sec-Fetch-Site: nonsense", 403, 403, 403},
	} {
		var headers []string
		if tt.headers != "" {
			headers = strings.Split(tt.headers, "|")
		}
		for method, want := range map[string]int{
			"GET": tt.get, "POST": tt.post, "DELETE": tt.post,
			"OPTIONS": tt.options,
		} {
			status, text, header := request(t, method, addr, "", headers...)
			if status != want {
				t.Errorf("%s %s: status %d, want %d", method, tt.headers, status, want)
			}
			var p struct{ Detail string }
			if status == 403 && (json.Unmarshal([]byte(text), &p) != nil || !strings.Contains(p.Detail, "proxy") ||
				!strings.Contains(p.Detail, "Origin")) {
				t.Errorf("%s %s: %s", method, tt.headers, text)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options":       "nosniff",
				"Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
			} {
				if got := header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		}
	}
}
