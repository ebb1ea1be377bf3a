package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/daemon"
	"github.com/headgate/headgate/bench/gate"
)

// question is a request that wrk sends again and again.
type question struct {
	name, title, method, path, body string
	headers                         []string // such as "Name: value"
}

var questions = []question{
	{
		name: "take", title: "POST /v1/take", method: http.MethodPost, path: "/v1/take",
		body:    `{"limit":"token-bucket 1000000000/h","key":"user:1"}`,
		headers: []string{"Content-Type: application/json"},
	},
	{
		name: "auth", title: "GET /v1/auth", method: http.MethodGet,
		path:    "/v1/auth?limit=token-bucket+1000000000/h&key=user:1",
		headers: []string{"X-Forwarded-Uri: /"},
	},
}

// overHTTP compares the paths that are asked once for each request of somebody else with a handler
// of net/http that reads and writes the same bytes and decides nothing.
func (b *bench) overHTTP() (list []compare.Comparison) {
	for _, q := range questions {
		for _, connections := range []int{1, 64, 512} {
			list = append(list, compare.Comparison{
				Name:  fmt.Sprintf("http-%s-%d", q.name, connections),
				Title: fmt.Sprintf("Server, %s by wrk, %d connections", q.title, connections),
				Goals: []compare.Goal{compare.Times(0.85)},
				Cells: func(ctx context.Context) ([]compare.Cell, error) { return httpCells(ctx, &q, connections) },
			})
		}
	}
	return list
}

func httpCells(ctx context.Context, q *question, connections int) ([]compare.Cell, error) {
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		return nil, errors.New("not run: wrk is missing")
	}
	url, stop, err := gate.Serve(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := q.ask(ctx, url)
	if err != nil {
		stop()
		return nil, err
	}
	plain, end, err := servePlain(ctx, answer)
	if err != nil {
		stop()
		return nil, err
	}
	cell := func(side compare.Side, name, base string, done func()) compare.Cell {
		return compare.Cell{
			Side: side, Name: name, At: fmt.Sprintf("%d connections", connections), Close: done,
			Measure: func(ctx context.Context, d time.Duration) (compare.Sample, error) {
				return runWrk(ctx, wrk, base, q, connections, d)
			},
		}
	}
	return []compare.Cell{
		cell(compare.Ours, gate.Name, url, stop),
		cell(compare.Rival, "a handler of net/http with the same bytes", plain, end),
	}, nil
}

// answered is an answer of Headgate, for the handler that answers with the same bytes.
type answered struct {
	status  int
	headers string
	body    string
}

// ask asks once.
func (q *question) ask(ctx context.Context, base string) (a answered, err error) {
	r, err := http.NewRequestWithContext(ctx, q.method, base+q.path, strings.NewReader(q.body))
	if err != nil {
		return a, err
	}
	for _, h := range q.headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %s: %s", q.title, res.Status, text)
	}
	for name, values := range res.Header {
		if name != "Date" && name != "Content-Length" { // which net/http and the handler write
			a.headers += name + ": " + values[0] + "\n"
		}
	}
	a.status, a.body = res.StatusCode, string(text)
	return a, err
}

// servePlain builds and starts the handler that decides nothing.
func servePlain(ctx context.Context, a answered) (url string, stop func(), err error) {
	addr, stop, err := startPlain(ctx, "plainhttp", "-status", strconv.Itoa(a.status), "-headers", a.headers,
		"-body", a.body)
	return "http://" + addr, stop, err
}

// startPlain builds and starts a program of bench that listens, and decides nothing.
func startPlain(ctx context.Context, name string, args ...string) (addr string, stop func(), err error) {
	file, remove, err := daemon.Build(ctx, "", "github.com/headgate/headgate/bench/"+name)
	if err != nil {
		return "", nil, err
	}
	if addr, err = daemon.FreeAddr(ctx); err != nil {
		remove()
		return "", nil, err
	}
	end, err := daemon.Start(ctx, file, addr, append(args, "-addr", addr))
	if err != nil {
		remove()
		return "", nil, err
	}
	return addr, func() { end(); remove() }, nil
}

var (
	wrkRate   = regexp.MustCompile(`(?m)^Requests/sec: +([0-9.]+)`)
	wrkDone   = regexp.MustCompile(`(?m)^ +(\d+) requests in `)
	wrkFailed = regexp.MustCompile(`(?m)Non-2xx or 3xx responses: (\d+)`)
	wrkBroken = regexp.MustCompile(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
	wrkP      = regexp.MustCompile(`(?m)^ +(50|99)% +([0-9.]+)(us|ms|s)`)
)

// runWrk sends a question for whole seconds, of which wrk knows no parts.
func runWrk(ctx context.Context, wrk, base string, q *question, connections int, d time.Duration) (
	s compare.Sample, err error,
) {
	script, err := os.CreateTemp("", "headgate-bench-*.lua")
	if err != nil {
		return s, err
	}
	defer os.Remove(script.Name())
	fmt.Fprintf(script, "wrk.method = %q\nwrk.body = %q\n", q.method, q.body)
	for _, h := range q.headers {
		name, value, _ := strings.Cut(h, ": ")
		fmt.Fprintf(script, "wrk.headers[%q] = %q\n", name, value)
	}
	if err := script.Close(); err != nil {
		return s, err
	}
	seconds := max(1, int(d.Round(time.Second)/time.Second))
	out, err := exec.CommandContext(ctx, wrk, "-t", "1", "-c", strconv.Itoa(connections),
		"-d", strconv.Itoa(seconds)+"s", "--latency", "-s", script.Name(), base+q.path).CombinedOutput()
	if err != nil {
		return s, fmt.Errorf("wrk: %w: %s", err, lastOf(out))
	}
	number := func(r *regexp.Regexp) (sum float64) {
		for _, text := range slices.Concat(r.FindAllSubmatch(out, 1)...)[min(1, len(r.FindAll(out, 1))):] {
			f, _ := strconv.ParseFloat(string(text), 64)
			sum += f
		}
		return sum
	}
	s.Value, s.Decisions = number(wrkRate), number(wrkDone)
	s.Asked, s.Failed = int64(s.Decisions), int64(number(wrkFailed)+number(wrkBroken))
	for _, m := range wrkP.FindAllSubmatch(out, -1) {
		value, err := time.ParseDuration(string(m[2]) + string(m[3]))
		if err != nil {
			return s, fmt.Errorf("wrk: %w", err)
		}
		if string(m[1]) == "50" {
			s.P50 = value
		} else {
			s.P99 = value
		}
	}
	return s, nil
}
