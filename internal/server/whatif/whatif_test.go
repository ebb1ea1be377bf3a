package whatif_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/whatif"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// server is a server with a clock and a caller that the test sets.
type server struct {
	logs    *whatif.Logs
	limiter *headgate.Limiter
	handler http.Handler
	caller  *auth.Caller
	now     time.Time
}

const configText = `limits:
  login: sliding-log 3/1m history 1d
  api: token-bucket 10/1m burst 5
`

func newServer(t *testing.T, c whatif.Config) *server {
	t.Helper()
	names, err := config.Parse("headgate.yaml", []byte(configText))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{now: time.Unix(1795600000, 0)}
	store := memory.New(&memory.Config{Names: true, Clock: func() int64 { return s.now.UnixMicro() }})
	s.limiter = headgate.New(store, &headgate.Config{Names: names})
	c.Names, c.Limiter, c.Now = names, s.limiter, func() time.Time { return s.now }
	s.logs = whatif.New(&c)
	t.Cleanup(s.logs.Close)
	s.handler = rest.New(service.New(s.limiter, names, names), slog.New(slog.DiscardHandler),
		&rest.Config{OtherRoutes: s.logs.Routes()})
	return s
}

// call sends a request as s.caller, and returns the status and the body of the answer.
func (s *server) call(t *testing.T, method, path string, v url.Values, body io.Reader) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, path+"?"+v.Encode(), body)
	r = r.WithContext(auth.WithCaller(r.Context(), s.caller))
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// upload sends a log, which must be read.
func (s *server) upload(t *testing.T, v url.Values, log []byte) *api.WhatIfLog {
	t.Helper()
	code, text := s.call(t, http.MethodPost, "/v1/whatif", v, bytes.NewReader(log))
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, text)
	}
	return decode[api.WhatIfLog](t, text)
}

// decode reads an answer, which must not have unknown members.
func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	v := new(T)
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// figures is the part of an answer about one limit that the tests compare.
type figures struct {
	Allowed, Denied int64
	Top             []replay.KeyReport
}

func figuresOf(t *testing.T, text string) (f figures) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return f
}

// accessLog returns a log of 10,000 requests of about 800 addresses within about 60 hours. As on a busy site, few
// addresses make most requests.
func accessLog() []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 4, 5000)
	var b bytes.Buffer
	now := time.Date(2026, 5, 17, 10, 5, 0, 0, time.UTC)
	for lines := 0; lines < 10_000; {
		now = now.Add(time.Duration(rng.ExpFloat64() * float64(90*time.Second)))
		n := zipf.Uint64()
		for range min(1+int(rng.ExpFloat64()*4), 10_000-lines) { // a page and its resources
			fmt.Fprintf(&b, "10.%d.%d.7 - - [%s] \"GET /page/%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0\"\n",
				n/250, n%250, now.Format("02/Jan/2006:15:04:05 -0700"), rng.IntN(300), rng.IntN(9000))
			now = now.Add(time.Second)
			lines++
		}
	}
	return b.Bytes()
}

// TestFiguresAreThoseOfReplay compares answers with what `headgate replay -o json` and `headgate suggest -o json` write.
func TestFiguresAreThoseOfReplay(t *testing.T) {
	t.Parallel()
	log := accessLog()
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, whatif.Config{})
	a := s.upload(t, url.Values{"key": {"ip"}, "name": {path}}, log)
	for _, limits := range [][]string{
		{"token-bucket 10/1m burst 5"},
		{"fixed-window 30/1h", "sliding-window 30/1h", "sliding-log 20/1h block 10m", "leaky-bucket 1/10s capacity 4"},
	} {
		var parsed []headgate.Limit
		for _, text := range limits {
			limit, err := headgate.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, limit)
		}
		reports, err := replay.Compare(t.Context(), parsed, "ip", []string{path}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := replay.WriteAllJSON(&want, reports); err != nil {
			t.Fatal(err)
		}
		code, got := s.call(t, http.MethodGet, "/v1/whatif", url.Values{"id": {a.ID}, "limit": limits}, nil)
		if code != http.StatusOK || got != want.String() {
			t.Errorf("%v: status %d\n%.400s\nwant\n%.400s", limits, code, got, &want)
		}
		if reports[0].Denied == 0 {
			t.Errorf("%v refuses nothing, so it tests little", limits)
		}
	}
	suggestOptions, err := replay.ParseSuggestOptions("0.2%", "keys", []string{"1m"})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := replay.Read(t.Context(), "ip", []string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	suggestions, err := requests.Suggest(t.Context(), suggestOptions)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := suggestions.WriteJSON(&want); err != nil {
		t.Fatal(err)
	}
	code, got := s.call(t, http.MethodGet, "/v1/whatif/suggest",
		url.Values{"id": {a.ID}, "refuse": {"0.2%"}, "of": {"keys"}, "period": {"1m"}}, nil)
	if code != http.StatusOK || got != want.String() {
		t.Errorf("status %d\n%.400s\nwant\n%.400s", code, got, &want)
	}
}

// TestTimeIsInTheNamedField checks the times that are read from two fields of a log, and that the ids differ.
func TestTimeIsInTheNamedField(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{})
	log := []byte("ip,begun,ended\n10.0.0.1,01.05.2026 12:00:00,02.05.2026 12:00:01\n")
	form := "%d.%m.%Y %H:%M:%S"
	begun := s.upload(t, url.Values{"key": {"ip"}, "time": {"begun"}, "time_format": {form}}, log)
	ended := s.upload(t, url.Values{"key": {"ip"}, "time": {"ended"}, "time_format": {form}}, log)
	if want := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMicro(); begun.First != want || begun.Format != "csv" {
		t.Errorf("by the field begun: got %+v, want first %d", begun, want)
	}
	if want := time.Date(2026, 5, 2, 12, 0, 1, 0, time.UTC).UnixMicro(); ended.First != want || ended.ID == begun.ID {
		t.Errorf("by the field ended: got %+v, want first %d and another id", ended, want)
	}
}

// TestConcurrentReplays checks that concurrent replays of a log are answered like single ones.
func TestConcurrentReplays(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{})
	a := s.upload(t, url.Values{"key": {"ip"}}, accessLog())
	want := map[string]string{}
	replayLimit := func(limit string) (int, string) {
		return s.call(t, http.MethodGet, "/v1/whatif", url.Values{"id": {a.ID}, "limit": {limit}}, nil)
	}
	for n := range 4 {
		limit := fmt.Sprintf("token-bucket %d/1m burst 2", n+1)
		_, want[limit] = replayLimit(limit)
	}
	done := make(chan bool)
	for limit := range want {
		go func() {
			for range 3 {
				if code, got := replayLimit(limit); code != http.StatusOK || got != want[limit] {
					t.Errorf("%s: status %d: %.200s", limit, code, got)
				}
			}
			done <- true
		}()
	}
	for range want {
		<-done
	}
}

// TestRecorded checks that the attempts that a limit has recorded are replayed, with the refused ones.
func TestRecorded(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{})
	login, err := headgate.Named("login")
	if err != nil {
		t.Fatal(err)
	}
	const hostileKey = "<script>\"'\n\x01,;"
	for i := range 12 {
		key := "alice"
		if i%3 == 0 {
			key = hostileKey
		}
		if _, err := s.limiter.Take(t.Context(), headgate.Charge{Limit: login, Key: key}); err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(time.Second)
	}
	a := s.upload(t, url.Values{"recorded": {"login"}}, nil)
	if a.Requests != 12 || a.Keys != 2 || a.Name != "the history of login" || a.Unparsed != 0 {
		t.Fatalf("got %+v, want 12 requests of 2 keys", a)
	}
	_, text := s.call(t, http.MethodGet, "/v1/whatif",
		url.Values{"id": {a.ID}, "limit": {"fixed-window 2/1h from-first"}}, nil)
	r := figuresOf(t, text)
	if r.Allowed != 4 || r.Denied != 8 || len(r.Top) != 2 || r.Top[1].Key != hostileKey || r.Top[1].Denied != 2 {
		t.Errorf("got %s, want 4 allowed and 8 refused", text)
	}
	// The limit itself refuses the same attempts again.
	_, text = s.call(t, http.MethodGet, "/v1/whatif", url.Values{"id": {a.ID}, "limit": {"login"}}, nil)
	if r := figuresOf(t, text); r.Allowed != 6 || r.Denied != 6 {
		t.Errorf("got %s, want 6 allowed and 6 refused", text)
	}
	since := s.now.Add(-3 * time.Second).UTC().Format(time.RFC3339)
	if a := s.upload(t, url.Values{"recorded": {"login"}, "since": {since}}, nil); a.Requests != 3 || a.Filtered != 9 {
		t.Errorf("got %+v, want 3 requests since then, 9 filtered", a)
	}
}

// TestBadRequests checks the problem of each bad request.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{MaxUpload: 20_000})
	a := s.upload(t, url.Values{"key": {"ip"}}, accessLog()[:10_000])
	line, _, _ := bytes.Cut(accessLog(), []byte("\n"))
	line = append(line, '\n')
	for _, c := range []struct {
		method, path string
		v            url.Values
		body         string
		code         int
		field, text  string
	}{
		{"POST", "", url.Values{"key": {"ip"}}, "", 400, "log", "the log is empty"},
		{"POST", "", url.Values{"key": {"ip"}}, "no\nlog\n", 400, "log", "format"},
		{"POST", "", url.Values{}, string(line), 400, "key", "is missing"},
		{"POST", "", url.Values{"key": {"shoe"}}, string(line), 400, "field", `"shoe"`},
		{"POST", "", url.Values{"key": {"ip"}, "since": {"soon"}}, string(line), 400, "since", "is not a time"},
		{"POST", "", url.Values{"key": {"ip"}, "where": {"x"}}, string(line), 400, "where", "method=POST"},
		{"POST", "", url.Values{"key": {"ip"}, "until": {"2001-01-01"}}, string(line), 400, "log", "no request"},
		{"POST", "", url.Values{"key": {"ip"}, "format": {"tea"}}, string(line), 400, "format", "is not one of"},
		{"POST", "", url.Values{"key": {"ip"}, "year": {"x"}}, string(line), 400, "year", "is not a year"},
		{"POST", "", url.Values{"key": {"ip"}, "time": {"ts"}}, string(line), 400, "time", "in one place"},
		{"POST", "", url.Values{"key": {"ip"}, "time_format": {"%Q"}}, string(line), 400, "time_format", "%Q"},
		{"POST", "", url.Values{"key": {"ip", "path"}}, string(line), 400, "key", "stands 2 times"},
		{"POST", "", url.Values{"keys": {"ip"}}, string(line), 400, "query", "unknown parameter"},
		{"POST", "", url.Values{"key": {"ip"}}, strings.Repeat(string(line), 300), 413, "", "at most 20000 bytes"},
		{"POST", "", url.Values{"recorded": {"api"}}, "", 400, "recorded", "keeps no history"},
		{"POST", "", url.Values{"recorded": {"login"}}, "", 400, "recorded", "nothing yet"},
		{"POST", "", url.Values{"recorded": {"nothing"}}, "", 400, "limit", "unknown"},
		{"POST", "", url.Values{"recorded": {""}}, "", 400, "recorded", "is empty"},
		{"GET", "", url.Values{"id": {a.ID}}, "", 400, "limit", "is missing"},
		{"GET", "", url.Values{"id": {a.ID}, "limit": {"token-bucket"}}, "", 400, "limit", ""},
		{"GET", "", url.Values{"id": {a.ID}, "limit": {"nothing"}}, "", 400, "limit", "unknown"},
		{"GET", "", url.Values{"id": {a.ID}, "limit": {"concurrency 1 ttl 9s"}}, "", 400, "limit", "at the same time"},
		{"GET", "", url.Values{"id": {"x"}, "limit": {"api"}}, "", 404, "id", "send it again"},
		{"GET", "", url.Values{"id": {a.ID}, "limit": {"api"}, "top": {"0"}}, "", 400, "top", "from 1 to 100"},
		{"GET", "/suggest", url.Values{"id": {a.ID}, "refuse": {"2"}}, "", 400, "refuse", "is not a share"},
		{"GET", "/suggest", url.Values{"id": {a.ID}, "of": {"shoes"}}, "", 400, "of", "neither"},
		{"GET", "/suggest", url.Values{"id": {a.ID}, "period": {"x"}}, "", 400, "period", ""},
	} {
		code, text := s.call(t, c.method, "/v1/whatif"+c.path, c.v, strings.NewReader(c.body))
		var p api.Problem
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Errorf("%v: %v in %s", c.v, err, text)
		}
		if code != c.code || p.Field != c.field || !strings.Contains(p.Detail, c.text) {
			t.Errorf("%s %v: got status %d: %s, want %d of %q", c.method, c.v, code, text, c.code, c.field)
		}
	}
}

// TestPackedLogIsBounded checks that a small body that unpacks to much more than may be read is refused.
func TestPackedLogIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{MaxUpload: 100_000, MaxMemory: 1 << 30})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 100_000 {
		fmt.Fprintln(z, `10.0.0.1 - - [17/May/2026:10:05:00 +0000] "GET / HTTP/1.1" 200 5`)
	}
	z.Close()
	code, text := s.call(t, http.MethodPost, "/v1/whatif", url.Values{"key": {"ip"}}, &packed)
	if code != http.StatusRequestEntityTooLarge || !strings.Contains(text, "the log is too large") {
		t.Errorf("got status %d, want 413: %s", code, text)
	}
}

// TestMemoryIsBounded checks that the longest unused logs and old ones are dropped, and that a large log is refused.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	log := accessLog()
	s := newServer(t, whatif.Config{MaxMemory: 1_200_000, MaxLogs: 3})
	var ids []string
	for i := range 4 {
		s.now = s.now.Add(time.Second)
		ids = append(ids, s.upload(t, url.Values{"key": {"ip"}, "name": {fmt.Sprint(i)}}, log[:len(log)/4]).ID)
	}
	cachedLogs := func() (list string) {
		for i, id := range ids {
			code, _ := s.call(t, http.MethodGet, "/v1/whatif", url.Values{"id": {id}, "limit": {"api"}}, nil)
			if code == http.StatusOK {
				list += fmt.Sprint(i)
			}
		}
		return list
	}
	if got := cachedLogs(); got != "123" {
		t.Errorf("got the logs %q, want 123", got)
	}
	s.now = s.now.Add(whatif.DefaultLife)
	if got := cachedLogs(); got != "" {
		t.Errorf("after their life: got the logs %q, want none", got)
	}
	var largeLog bytes.Buffer
	for i := range 9000 {
		fmt.Fprintf(&largeLog, "10.0.%d.%d - - [17/May/2026:10:05:00 +0000] \"GET / HTTP/1.1\" 200 5\n", i/250, i%250)
	}
	code, text := s.call(t, http.MethodPost, "/v1/whatif", url.Values{"key": {"ip"}}, &largeLog)
	if code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large log: got status %d, want 413: %s", code, text)
	}
}
