package resp_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/auth/authtest"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/resp"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve serves until the end of the test, and returns the server and its address.
func serve(t testing.TB, s store.Store, c *resp.Config) (*resp.Server, string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names, err := config.Parse("f.yaml", []byte("allow_notations: true"))
	if err != nil {
		t.Fatal(err)
	}
	server := resp.New(service.New(headgate.New(s, &headgate.Config{Names: names}), names, nil),
		slog.New(slog.DiscardHandler), c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return server, l.Addr().String()
}

// send sends text on a new connection, closes the connection for writing, and returns the replies.
func send(t testing.TB, addr, text string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("%q: %q, %v", text, answer, err)
	}
	return string(answer)
}

// array returns a command as client libraries send it: an array of texts.
func array(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// integers returns the reply of CL.THROTTLE: an array of five integers.
func integers(n ...int) string {
	var b strings.Builder
	b.WriteString("*5\r\n")
	for _, v := range n {
		fmt.Fprintf(&b, ":%d\r\n", v)
	}
	return b.String()
}

// TestFiveIntegers checks the replies to the commands of redis-cell's documentation, and to others, also refusals.
func TestFiveIntegers(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, frozenStore(), nil)
	for _, tt := range []struct{ text, want string }{
		{array("CL.THROTTLE", "user123", "15", "30", "60", "1"), integers(0, 16, 15, -1, 2)},
		{array("cl.throttle", "user123", "15", "30", "60"), integers(0, 16, 14, -1, 4)},
		{"CL.THROTTLE user123 15 30 60 14\r\n", integers(0, 16, 0, -1, 32)},
		{"CL.THROTTLE user123 15 30 60 1\n", integers(1, 16, 0, 2, 32)},
		{"CL.THROTTLE user123 15 30 60 17\n", integers(1, 16, 0, -1, 32)}, // never
		{"CL.THROTTLE user123 15 30 60 0\n", integers(0, 16, 0, -1, 32)},
		{"CL.THROTTLE other 0 1 3600 1\r\nCL.THROTTLE other 0 1 3600 1\r\n", integers(0, 1, 0, -1, 3600) + integers(1, 1, 0, 3600, 3600)},
	} {
		if got := send(t, addr, tt.text); got != tt.want {
			t.Errorf("%q:\n got %q\nwant %q", tt.text, got, tt.want)
		}
	}
}

// TestCommands checks the replies to the other commands that client libraries and people send.
func TestCommands(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), &resp.Config{Version: "1.2"})
	const hello = "$6\r\nserver\r\n$8\r\nheadgate\r\n$7\r\nversion\r\n$3\r\n1.2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n" +
		"$4\r\nrole\r\n$6\r\nmaster\r\n$5\r\nproto\r\n"
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"\r\n\r\nPING\r\n", "+PONG\r\n"},
		{array("PING"), "+PONG\r\n"},
		{array("ping", "a\r\nb"), "$4\r\na\r\nb\r\n"},
		{"*0\r\n*-1\r\n" + array("PING"), "+PONG\r\n"},
		{array("PING", "a", "b"), "-ERR wrong number of arguments for 'ping' command\r\n"},
		{array("HELLO"), "*10\r\n" + hello + ":2\r\n"},
		{array("HELLO", "3") + array("HELLO"), "%5\r\n" + hello + ":3\r\n%5\r\n" + hello + ":3\r\n"},
		{array("HELLO", "2", "AUTH", "default", "x", "SETNAME", "me"), "*10\r\n" + hello + ":2\r\n"},
		{array("HELLO", "4"), "-NOPROTO unsupported protocol version\r\n"},
		{array("HELLO", "3", "AUTH", "x"), "-ERR syntax error in HELLO\r\n"},
		{array("SELECT", "0"), "+OK\r\n"},
		{array("SELECT", "1"), "-ERR DB index is out of range: there is 0 alone\r\n"},
		{array("SELECT"), "-ERR wrong number of arguments for 'select' command\r\n"},
		{array("COMMAND"), "*0\r\n"},
		{array("COMMAND", "DOCS"), "*0\r\n"},
		{array("COMMAND", "COUNT"), ":8\r\n"},
		{array("AUTH", "x"), "-ERR AUTH was called, and the server has no tokens: everybody is let in\r\n"},
		{array("QUIT") + array("PING"), "+OK\r\n"},
		{
			array("GET", "x"),
			"-ERR unknown command; CL.THROTTLE is served here, and PING, HELLO, AUTH, COMMAND, INFO, SELECT, QUIT\r\n",
		},
	} {
		if got := send(t, addr, tt.text); got != tt.want {
			t.Errorf("%q:\n got %q\nwant %q", tt.text, got, tt.want)
		}
	}
}

// TestBadInputChargesNothing sends invalid input between charges, and checks that only the charges count.
func TestBadInputChargesNothing(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, frozenStore(), nil)
	used := 0
	charge := func(input string) {
		t.Helper()
		used++
		want := integers(0, 100, 100-used, -1, used*3600)
		if got := send(t, addr, array("CL.THROTTLE", "k", "99", "1", "3600")); got != want {
			t.Fatalf("after %.80q:\n got %q\nwant %q", input, got, want)
		}
	}
	charge("nothing")
	for _, tt := range []struct{ text, want string }{
		{array("CL.THROTTLE", "k", "99", "1"), "-ERR CL.THROTTLE: takes key, max_burst, count, period"},
		{array("CL.THROTTLE", "k", "99", "1", "3600", "1", "1"), "-ERR CL.THROTTLE: takes key"},
		{array("CL.THROTTLE", "k", "-1", "1", "3600"), `-ERR max_burst: "-1" is not a whole number from 0 on`},
		{array("CL.THROTTLE", "k", "99", "0", "3600"), `-ERR count: "0" is not a whole number from 1 on`},
		{array("CL.THROTTLE", "k", "99", "1", "1.5"), `-ERR period: "1.5" is not a whole number from 1 on`},
		{array("CL.THROTTLE", "k", "99", "1", "3600", "-1"), `-ERR quantity: "-1" is not`},
		{array("CL.THROTTLE", "k", "9223372036854775807", "1", "3600"), "-ERR max_burst: "},
		{array("CL.THROTTLE", "k", "99", "1", "9223372036854775806"), "-ERR "},
		{array("CL.THROTTLE", "k", "99", "9223372036854775806", "1"), "-ERR "},
		{array("CL.THROTTLE", "\xff", "99", "1", "3600"), "-ERR key"},
		{array("CL.THROTTLE", strings.Repeat("k", 600), "99", "1", "3600"), "-ERR key"},
		{"*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$2\r\n99\r\n", ""}, // the connection ends within the command
		{"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*1\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*1000000000000\r\n", "-ERR Protocol error: too big a command\r\n"},
		{"*99999999999999999999999999", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"*1\r\nPING\r\n", "-ERR Protocol error: expected '$'\r\n"},
		{"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"*1\r\n$1000000\r\n", "-ERR Protocol error: too big a command\r\n"},
		{"*1\r\n$4\r\nPINGxx", "-ERR Protocol error: invalid bulk length\r\n"},
		{"*2\r\n$9000\r\n" + strings.Repeat("x", 9000) + "\r\n$9000\r\n" + strings.Repeat("x", 9000), "-ERR Protocol error: too big"},
		{strings.Repeat("x", 20000), "-ERR Protocol error: too big a command\r\n"},
		{strings.Repeat("x ", 100) + "\r\n", "-ERR Protocol error: too big a command\r\n"},
		{"\x16\x03\x01\x02\x00\x01\r\n", "-ERR unknown command"}, // TLS
	} {
		got := send(t, addr, tt.text)
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" || strings.Count(got, "\n") > 1 {
			t.Errorf("%.80q:\n got %q\nwant %q", tt.text, got, tt.want)
		}
		charge(tt.text)
	}
	// An invalid command among valid ones fails alone, and is answered in its place.
	used++
	got := send(t, addr, array("CL.THROTTLE", "k", "99", "1", "3600")+array("CL.THROTTLE", "k", "99", "x", "3600")+
		array("PING"))
	if want := integers(0, 100, 100-used, -1, used*3600) + `-ERR count: "x" is not a whole number from 1 on` + "\r\n+PONG\r\n"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestCallersAreKnownByTheirTokens checks AUTH and HELLO with tokens, and the commands before and after them.
func TestCallersAreKnownByTheirTokens(t *testing.T) {
	t.Parallel()
	file, tokens := authtest.Open(t, auth.Entry{Name: "some", Role: "take", Limits: []string{"gcra 1/*"}},
		auth.Entry{Name: "reader", Role: "read"})
	some, reader := tokens["some"], tokens["reader"]
	_, addr := serve(t, memory.New(nil), &resp.Config{Tokens: file})
	take, takeOther := array("CL.THROTTLE", "k", "9", "1", "3600"), array("CL.THROTTLE", "k", "9", "2", "3600")
	const ok, noAuth, wrong, noPerm = "+OK", "-NOAUTH ", "-WRONGPASS ", "-NOPERM "
	for _, tt := range []struct {
		text string
		want []string // beginnings of the status, error and array lines of the replies
	}{
		{take, []string{noAuth}},
		{take + take, []string{noAuth}},
		{array("PING"), []string{noAuth}},
		{array("HELLO", "3"), []string{noAuth}},
		{array("QUIT"), []string{ok}},
		{array("AUTH", "wrong") + take, []string{wrong}},
		{array("AUTH", some) + take + takeOther, []string{ok, "*5", "-ERR"}},
		{array("AUTH", "default", some) + array("AUTH", "wrong") + take, []string{ok, wrong}},
		{array("HELLO", "2", "AUTH", "default", some) + take, []string{"*10", "*5"}},
		{array("HELLO", "2", "AUTH", "default", "x"), []string{wrong}},
		{array("AUTH", reader) + array("AUTH", some) + take, []string{noPerm, ok, "*5"}},
		{array("AUTH"), []string{"-ERR wrong number"}},
	} {
		var lines []string
		for l := range strings.SplitSeq(strings.TrimSuffix(send(t, addr, tt.text), "\r\n"), "\r\n") {
			if strings.HasPrefix(l, "+") || strings.HasPrefix(l, "-") || strings.HasPrefix(l, "*") {
				lines = append(lines, l)
			}
		}
		same := slices.EqualFunc(lines, tt.want, strings.HasPrefix)
		if !same {
			t.Errorf("%q:\n got %q\nwant %q", tt.text, lines, tt.want)
		}
	}
}

// TestManyClientsAreExact checks that exactly 100 of 640 commands in pipelines of 32 connections are allowed.
func TestManyClientsAreExact(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), nil)
	const callers, perCaller, burst = 32, 20, 100
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			throttle := array("CL.THROTTLE", "k", fmt.Sprint(burst-1), "1", "86400")
			got := send(t, addr, strings.Repeat(throttle, perCaller))
			if strings.Count(got, "*5") != perCaller {
				t.Errorf("%d of %d commands were answered", strings.Count(got, "*5"), perCaller)
			}
			allowed.Add(int64(strings.Count(got, "*5\r\n:0")))
		})
	}
	wg.Wait()
	if allowed.Load() != burst {
		t.Errorf("%d were allowed, want %d", allowed.Load(), burst)
	}
}

// TestALongPipeline sends more commands than the server reads at once, and reads no reply before their end.
func TestALongPipeline(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), nil)
	const n = 5000
	got := send(t, addr, strings.Repeat(array("CL.THROTTLE", "k", "9", "1", "86400"), n))
	if answered, allowed := strings.Count(got, "*5"), strings.Count(got, "*5\r\n:0"); answered != n || allowed != 10 {
		t.Errorf("%d were answered, %d allowed; want %d and 10", answered, allowed, n)
	}
}

// TestAStoreThatFailsAdmitsNothing checks the errors of an unavailable store and of an unknown outcome.
func TestAStoreThatFailsAdmitsNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{{store.ErrUnavailable, "Nothing was charged"}, {store.ErrUnknownOutcome, "not known whether"}} {
		_, addr := serve(t, &failingStore{memory.New(nil), tt.err}, nil)
		got := send(t, addr, array("CL.THROTTLE", "k", "9", "1", "3600"))
		if !strings.HasPrefix(got, "-ERR ") || !strings.Contains(got, tt.want) {
			t.Errorf("%v: got %q, want an error with %q", tt.err, got, tt.want)
		}
	}
}

// TestShutdownAnswersWhatWasRead checks that Shutdown closes idle connections, and waits for a command in flight.
func TestShutdownAnswersWhatWasRead(t *testing.T) {
	t.Parallel()
	gate := &gatedStore{Store: frozenStore(), called: make(chan struct{}), release: make(chan struct{})}
	server, addr := serve(t, gate, nil)
	answer := make(chan string)
	go func() { answer <- send(t, addr, array("CL.THROTTLE", "k", "9", "1", "3600")) }()
	<-gate.called
	idle, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	stopped := make(chan error)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("an idle connection stays open")
	}
	close(gate.release)
	if got, want := <-answer, integers(0, 10, 9, -1, 3600); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestRealClients uses a client library with both versions of the protocol, and redis-cli and redis-benchmark if found.
func TestRealClients(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, frozenStore(), nil)
	for _, resp2 := range []bool{false, true} {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{addr}, AlwaysRESP2: resp2, DisableCache: true, ForceSingleClient: true,
		})
		if err != nil {
			t.Errorf("version 2 alone %t: %v", resp2, err)
			continue
		}
		defer c.Close()
		for i, want := range [][]int64{{0, 2, 1, -1, 3600}, {0, 2, 0, -1, 7200}, {1, 2, 0, 3600, 7200}} {
			command := c.B().Arbitrary("CL.THROTTLE").Keys(fmt.Sprint("rueidis ", resp2)).Args("1", "1", "3600").Build()
			got, err := c.Do(t.Context(), command).AsIntSlice()
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("version 2 alone %t, %d: %v, %v, want %v", resp2, i, got, err, want)
			}
		}
	}
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Log("there is no redis-cli here")
		return
	}
	host, port, _ := net.SplitHostPort(addr)
	out, err := exec.CommandContext(t.Context(), cli, "-h", host, "-p", port,
		"CL.THROTTLE", "cli", "15", "30", "60").CombinedOutput()
	if err != nil || string(out) != "0\n16\n15\n-1\n2\n" {
		t.Errorf("redis-cli: %q, %v", out, err)
	}
	benchmark, err := exec.LookPath("redis-benchmark")
	if err != nil {
		t.Log("there is no redis-benchmark here")
		return
	}
	out, err = exec.CommandContext(t.Context(), benchmark, "-h", host, "-p", port,
		"-c", "16", "-n", "2000", "-P", "4", "-q",
		"CL.THROTTLE", "benchmark", "1000000", "1000000", "60").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "requests per second") || strings.Contains(string(out), "rror") {
		t.Errorf("redis-benchmark: %s, %v", out, err)
	}
}
