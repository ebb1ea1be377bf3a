package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/httplimit"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
)

// providerLimit never refuses in this test, unless the key is blocked.
const providerLimit = "token-bucket 1000/s burst 1000"

// providerPause is the pause that the provider demands. It is more than a second, since some headers have only whole
// seconds.
const providerPause = 2 * time.Second

// vendors are the providers of docs/providers.md. protocol is how the processes call Headgate.
var vendors = []struct {
	name, protocol string
	status         int
	wholeSeconds   bool                                  // the headers have a point in time in whole seconds
	headers        func(end time.Time) map[string]string // end: when requests are served again
}{
	{"OpenAI", "RoundTripper", 429, false, func(time.Time) map[string]string {
		return map[string]string{
			"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0",
			"x-ratelimit-reset-requests": providerPause.String(), "x-ratelimit-remaining-tokens": "149984",
		}
	}},
	{"Anthropic", "gRPC", 429, false, func(end time.Time) map[string]string {
		return map[string]string{
			"retry-after": seconds(providerPause), "anthropic-ratelimit-requests-remaining": "0",
			"anthropic-ratelimit-requests-reset": end.UTC().Format(time.RFC3339),
		}
	}},
	{"Anthropic without retry-after", "gRPC", 429, true, func(end time.Time) map[string]string {
		return map[string]string{
			"anthropic-ratelimit-input-tokens-remaining": "0",
			"anthropic-ratelimit-input-tokens-reset":     end.UTC().Format(time.RFC3339),
		}
	}},
	{"GitHub", "JSON", 403, true, func(end time.Time) map[string]string {
		return map[string]string{
			"x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": strconv.FormatInt(end.Unix(), 10),
		}
	}},
	{"GitHub's secondary limit", "RoundTripper", 403, false, func(time.Time) map[string]string {
		return map[string]string{"retry-after": seconds(providerPause), "x-ratelimit-remaining": "4000"}
	}},
	{"Azure", "JSON", 429, false, func(time.Time) map[string]string {
		return map[string]string{"retry-after-ms": strconv.FormatInt(providerPause.Milliseconds(), 10)}
	}},
	{"Stripe", "RoundTripper", 429, false, func(time.Time) map[string]string {
		return map[string]string{"stripe-should-retry": "true"}
	}},
	{"AWS", "gRPC", 429, false, func(time.Time) map[string]string {
		return map[string]string{"x-amzn-errortype": "TooManyRequestsException"}
	}},
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }

// provider answers requests with 200, or refuses one as a vendor does.
type provider struct {
	status       int
	wholeSeconds bool
	headers      func(end time.Time) map[string]string

	mu            sync.Mutex
	refusesNext   bool
	pauseEnd      time.Time      // end of the pause after the refusal; zero before the refusal
	earlyRequests []string       // requests that came before pauseEnd
	senders       map[string]int // numbers of requests after pauseEnd, by path: each process has its own
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.refusesNext {
		p.refusesNext = false
		p.pauseEnd = now.Add(providerPause)
		if p.wholeSeconds {
			p.pauseEnd = p.pauseEnd.Add(time.Second).Truncate(time.Second)
		}
		for name, value := range p.headers(p.pauseEnd) {
			w.Header().Set(name, value)
		}
		w.WriteHeader(p.status)
		return
	}
	if remaining := p.pauseEnd.Sub(now); remaining > 0 {
		p.earlyRequests = append(p.earlyRequests, fmt.Sprintf("process %s, %v early", r.URL.Path, remaining))
	} else if !p.pauseEnd.IsZero() {
		p.senders[r.URL.Path]++
	}
}

// refuseNext makes the provider refuse the next request.
func (p *provider) refuseNext() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusesNext = true
}

// results returns the requests that came before the end of the pause, and how many processes have sent requests since.
func (p *provider) results() (earlyRequests []string, processes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.earlyRequests, len(p.senders)
}

// TestObserve429StopsAllProcesses has three processes send requests to a provider, each with a Headgate server
// of its own; the servers share a store. The provider refuses one request as a vendor does. No process sends a request
// before the time that the response named, and all send one after it. A response that names no time stops no process.
func TestObserve429StopsAllProcesses(t *testing.T) {
	t.Parallel()
	testVendors(t, 1)
}

func TestObserveRefusalsOfAllVendors(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	testVendors(t, len(vendors))
}

// testVendors runs the test with the first count vendors.
func testVendors(t *testing.T, count int) {
	t.Helper()
	dsn := migrated.Postgres(t)
	var servers [3]string
	for i := range servers {
		addr := fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
		servers[i] = startReady(t, t.TempDir(), "--store", dsn, "--grpc", addr).url + " " + addr
	}
	for _, v := range vendors[:count] {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			p := &provider{
				status: v.status, wholeSeconds: v.wholeSeconds, headers: v.headers, senders: map[string]int{},
			}
			providerServer := httptest.NewServer(p)
			t.Cleanup(providerServer.Close)
			var stdins [3]io.Writer
			var stdouts [3]*bufio.Reader
			for i, server := range servers {
				task := fmt.Sprintf("%s %s %d %s %s", v.protocol, strings.ReplaceAll(v.name, " ", "_"), i, server,
					providerServer.URL)
				c := dbtest.StartChild(t, task)
				stdins[i], stdouts[i] = c.In, bufio.NewReader(c.Out)
			}
			sendOne := func(i int, want string) {
				t.Helper()
				fmt.Fprintln(stdins[i], "one")
				if line, err := stdouts[i].ReadString('\n'); err != nil || want != "" && line != want+"\n" {
					t.Fatalf("process %d: %q, %v, want %q", i, line, err, want)
				}
			}
			for i := range stdins { // all processes have seen the key pass
				sendOne(i, "200")
			}
			p.refuseNext()
			sendOne(0, strconv.Itoa(v.status))
			if v.name == "Stripe" || v.name == "AWS" {
				for i := range stdins {
					sendOne(i, "200")
				}
				return
			}
			await.Until(t, "all processes to send again", func() bool {
				for i := range stdins {
					sendOne(i, "")
				}
				earlyRequests, processes := p.results()
				if len(earlyRequests) > 0 {
					t.Fatalf("requests were sent before the time that the response named: %q", earlyRequests)
				}
				return processes == len(stdins)
			})
		})
	}
}

// caller is a process of testVendors, with its key, and the addresses of its server and of the provider. It sends one
// request for each line on its input, and prints the answer.
type caller struct {
	key, url, provider string
	grpc               pb.HeadgateServiceClient
}

// runCaller runs a caller until the end of its input if this process is one, and reports whether it is.
func runCaller() bool {
	job := strings.Fields(dbtest.Task())
	if len(job) != 6 {
		return false
	}
	// The task has a protocol, a key, a number, the URL and the gRPC address of a server, and the URL of the provider.
	c := caller{key: job[1], url: job[3], provider: job[5] + "/" + job[2]}
	send := c.viaJSON
	switch job[0] {
	case "gRPC":
		conn, err := grpc.NewClient(job[4], grpc.WithTransportCredentials(insecure.NewCredentials()))
		must(err)
		c.grpc, send = pb.NewHeadgateServiceClient(conn), c.viaGRPC
	case "RoundTripper":
		limiter, err := client.New(c.url, nil)
		must(err)
		rt, err := httplimit.New(limiter, headgate.MustParse(providerLimit),
			&httplimit.Config{Key: func(*http.Request) string { return c.key }})
		must(err)
		send = func() string {
			answer, err := (&http.Client{Transport: rt}).Get(c.provider)
			if errors.Is(err, headgate.ErrDenied) {
				return "refused"
			}
			must(err)
			answer.Body.Close()
			return strconv.Itoa(answer.StatusCode)
		}
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(send())
	}
	return true
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// viaJSON takes and observes by JSON.
func (c *caller) viaJSON() string {
	return c.send(func() bool {
		var d struct{ Allowed bool }
		c.post("/v1/take", map[string]any{"limit": providerLimit, "key": c.key}, &d)
		return d.Allowed
	}, func(status int, headers map[string]string) {
		var o struct{ Field string }
		c.post("/v1/observe", map[string]any{"limit": providerLimit, "key": c.key, "status": status, "headers": headers}, &o)
	})
}

func (c *caller) post(path string, in, out any) {
	body, err := json.Marshal(in)
	must(err)
	answer, err := http.Post(c.url+path, "application/json", bytes.NewReader(body))
	must(err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		must(fmt.Errorf("%s: %s", path, answer.Status))
	}
	must(json.NewDecoder(answer.Body).Decode(out))
}

// viaGRPC takes and observes by gRPC.
func (c *caller) viaGRPC() string {
	ctx := context.Background()
	return c.send(func() bool {
		d, err := c.grpc.Take(ctx, &pb.Request{Charges: []*pb.Charge{{Limit: providerLimit, Key: &c.key}}})
		must(err)
		return d.Allowed
	}, func(status int, headers map[string]string) {
		_, err := c.grpc.Observe(ctx, &pb.ObserveRequest{
			Limit: providerLimit, Key: &c.key, Status: int32(status), Headers: headers,
		})
		must(err)
	})
}

// send sends a request to the provider if take admits it, and observes an answer that is not 200. It returns the status
// of the answer, or refused.
func (c *caller) send(take func() bool, observe func(status int, headers map[string]string)) string {
	if !take() {
		return "refused"
	}
	answer, err := http.Get(c.provider)
	must(err)
	answer.Body.Close()
	headers := map[string]string{}
	for name, values := range answer.Header {
		headers[name] = values[0]
	}
	if answer.StatusCode != http.StatusOK {
		observe(answer.StatusCode, headers)
	}
	return strconv.Itoa(answer.StatusCode)
}
