package replay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/replay"
)

var bucket = headgate.MustParse("token-bucket 1/1m burst 1")

// run replays logs against one limit.
func run(ctx context.Context, limit headgate.Limit, key string, logs []string, cfg *replay.Config) (
	*replay.Report, error,
) {
	reports, err := replay.Compare(ctx, []headgate.Limit{limit}, key, logs, cfg)
	if err != nil {
		return nil, err
	}
	return reports[0], nil
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func compress(t *testing.T, data string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// alice, bob and carol are addresses of clients.
const (
	alice = "192.0.2.1"
	bob   = "192.0.2.2"
	carol = "192.0.2.3"
)

func line(second int, ip string) string {
	return fmt.Sprintf("%s - - [17/May/2015:10:05:%02d +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n", ip, second)
}

func TestReportCountsLinesAndDisorder(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20+5)
	log := "\xef\xbb\xbf" + line(10, alice) + "broken\x1b[31m\n\n" + line(3, bob) + strings.TrimSuffix(line(40, alice),
		"\n") + "\r\n" +
		long + "\n" + line(39, bob) + strings.Replace(line(9, carol), carol, "\xff", 1) +
		strings.Replace(line(9, carol), carol, strings.Repeat("k", 513), 1) + strings.TrimSuffix(line(41, alice), "\n")
	r, err := run(t.Context(), bucket, "ip", []string{writeFile(t, "a.log", []byte(log))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Bob at 3 and 39, Alice at 10, 40 and 41: the first request of each passes.
	if r.Lines != 10 || r.Requests != 5 || r.Keys != 2 || r.Allowed != 2 || r.Denied != 3 || r.Unparsed != 4 ||
		r.Skipped != 1 {
		t.Errorf("got %+v", r)
	}
	if r.Disorder.Requests != 2 || r.Disorder.Greatest.Duration != 7*time.Second {
		t.Errorf("disorder: got %+v", r.Disorder)
	}
	if b := r.FirstUnparsed; b == nil || b.Line != 2 || b.Text != "broken\x1b[31m" {
		t.Errorf("first unparsed: got %+v", b)
	}
	if len(r.Top) != 2 || r.Top[0].Key != alice || r.Top[0].Denied != 2 || r.Top[0].FirstDenied.Second() != 40 {
		t.Errorf("top: got %+v", r.Top)
	}
	var text bytes.Buffer
	if err := replay.WriteAllText(&text, []*replay.Report{r}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"refused    3   60.0 %, 2 keys", `a.log:2: does not begin with a host`,
		`"broken\x1b[31m"`, "disorder   2 ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Error("the text carries an escape sequence of the log")
	}
}

func TestReasonOfBadKey(t *testing.T) {
	t.Parallel()
	log := line(1, alice) + strings.Replace(line(2, alice), "- -", "- "+strings.Repeat("k", 513), 1)
	r, err := run(t.Context(), bucket, "user", []string{writeFile(t, "a.log", []byte(log))}, nil)
	if err != nil || r.Unparsed != 1 || !strings.Contains(r.FirstUnparsed.Reason, "513 bytes") {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestGzipStdinAndSeveralLogs(t *testing.T) {
	t.Parallel()
	gzipLog := writeFile(t, "a.log.gz", compress(t, line(1, alice)+line(2, alice)))
	emptyLog := writeFile(t, "empty.log", nil)
	cfg := &replay.Config{Stdin: strings.NewReader(`{"ts":1431857103,"ip":"192.0.2.1"}`)}
	r, err := run(t.Context(), bucket, "ip", []string{gzipLog, "-", emptyLog}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The line on standard input is at 10:05:03, after the two lines of the file.
	if r.Requests != 3 || r.Denied != 2 || len(r.Logs) != 2 || r.Logs[1].Format != accesslog.JSON ||
		r.Logs[0].Format != accesslog.Combined {
		t.Errorf("got %+v", r)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	combinedLog := writeFile(t, "good.log", []byte(line(1, alice)))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	gzipLog := compress(t, strings.Repeat(line(1, alice), 5000))
	// A frame of zstd with one raw block of a line, which is not the last block of the frame (RFC 8878, 3.1.1).
	block := uint16(len(line(1, alice))) << 3
	zstdLog := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x50, byte(block), byte(block >> 8), 0}, line(1, alice)...)
	for name, c := range map[string]struct {
		ctx      context.Context
		limit    headgate.Limit
		key      string
		logs     []string
		cfg      replay.Config
		wantText string
		wantErr  error
	}{
		"directory": {logs: []string{t.TempDir()}, wantText: "is a directory"},
		"missing": {
			logs: []string{combinedLog, "/does/not/exist.log"}, wantErr: os.ErrNotExist,
			wantText: "/does/not/exist.log",
		},
		"empty": {logs: []string{writeFile(t, "e.log", nil)}, wantErr: replay.ErrEmpty},
		"empty, format": {
			logs: []string{writeFile(t, "e.log", nil)}, cfg: replay.Config{Format: accesslog.SSHD},
			wantErr: replay.ErrEmpty,
		},
		"empty gzip": {logs: []string{writeFile(t, "e.gz", compress(t, ""))}, wantErr: replay.ErrEmpty},
		"other format": {
			logs: []string{combinedLog}, cfg: replay.Config{Format: accesslog.JSON}, wantErr: replay.ErrUnreadable,
			wantText: "is not JSON",
		},
		"no format at all": {logs: []string{writeFile(t, "x.log", []byte("a\nb\n"))}, wantErr: replay.ErrFormat, wantText: `"a"`},
		"mail server": {
			logs: []string{writeFile(t, "mail.log", []byte(mailLine))}, wantErr: replay.ErrFormat,
			wantText: "traefik, combined, common, vhost_combined, haproxy, alb, envoy, iis, caddy, traefik_json, usage, json, csv, sshd",
		},
		"proxy, as sshd": {
			logs: []string{writeFile(t, "haproxy.log", []byte(haproxyLine))},
			cfg:  replay.Config{Format: accesslog.SSHD}, wantErr: replay.ErrUnreadable,
			wantText: "none of 1 line is of the format sshd",
		},
		"one of two": {
			logs: []string{combinedLog, writeFile(t, "mail.log", []byte(mailLine))}, wantErr: replay.ErrFormat,
			wantText: "mail.log",
		},
		"mostly not": {logs: []string{writeFile(t, "x.log", []byte(line(1, alice)+"b\nc\n"))}, wantErr: replay.ErrFormat},
		"mostly not, later": {
			logs: []string{writeFile(t, "x.log",
				[]byte(strings.Repeat(line(1, alice), 2000)+strings.Repeat("b\n", 2001)))}, wantErr: replay.ErrFormat,
			wantText: `begins as combined, but of 4,001 lines only 2,000`,
		},
		"unknown format": {
			logs: []string{combinedLog}, cfg: replay.Config{Format: "xml"}, wantErr: headgate.ErrInvalid,
			wantText: "traefik, combined, common, vhost_combined, haproxy",
		},
		"unknown field": {
			logs: []string{combinedLog}, key: "request.ip", wantErr: headgate.ErrInvalid,
			wantText: "ip, user, method, path, status, bytes, referer and agent",
		},
		"no field":           {logs: []string{combinedLog}, key: "-", wantErr: headgate.ErrInvalid},
		"nothing but others": {logs: []string{writeFile(t, "s.log", []byte(mailLine+noLoginLine))}, wantErr: replay.ErrNoRequest, wantText: "2 lines: 1 line: is of another program; 1 line: is not about"},
		"no log":             {wantErr: headgate.ErrInvalid, wantText: "log: none"},
		"stdin twice":        {logs: []string{"-", "-"}, wantErr: headgate.ErrInvalid},
		"concurrency": {
			logs: []string{combinedLog}, limit: headgate.MustParse("concurrency 10 ttl 30s"),
			wantErr: headgate.ErrInvalid,
		},
		"no such year":   {logs: []string{combinedLog}, cfg: replay.Config{Config: accesslog.Config{Year: 99}}, wantErr: headgate.ErrInvalid},
		"cancelled":      {ctx: cancelled, logs: []string{combinedLog}, wantErr: context.Canceled},
		"gzip that ends": {logs: []string{writeFile(t, "cut.gz", gzipLog[:len(gzipLog)-9])}, wantText: "unexpected EOF"},
		"zstd that ends": {logs: []string{writeFile(t, "cut.zst", zstdLog)}, wantText: "unexpected EOF"},
		"xz":             {logs: []string{writeFile(t, "x.xz", []byte("\xfd7zXZ\x00"))}, wantText: "packed with xz"},
		"no such form": {
			logs: []string{combinedLog}, cfg: replay.Config{Config: accesslog.Config{TimeFormat: "%Q"}}, wantErr: headgate.ErrInvalid, wantText: "time_format",
		},
		"a time of its own": {
			logs: []string{combinedLog}, cfg: replay.Config{Config: accesslog.Config{Time: "ts"}},
			wantErr:  headgate.ErrInvalid,
			wantText: "a log of the format combined has its time in one place",
		},
		"sshd of a website": {
			logs: []string{combinedLog}, cfg: replay.Config{Format: accesslog.SSHD}, wantErr: replay.ErrUnreadable,
			wantText: "syslog",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			if c.limit.IsZero() {
				c.limit = bucket
			}
			if c.key == "" {
				c.key = "ip"
			}
			r, err := run(c.ctx, c.limit, c.key, c.logs, &c.cfg)
			if err == nil || c.wantErr != nil && !errors.Is(err, c.wantErr) ||
				!strings.Contains(err.Error(), c.wantText) {
				t.Errorf("got %+v, %v; want %q, %v", r, err, c.wantText, c.wantErr)
			}
		})
	}
	if _, err := run(t.Context(), headgate.Limit{}, "ip", []string{combinedLog}, nil); !errors.Is(
		err, headgate.ErrInvalid) {
		t.Errorf("zero limit: got %v", err)
	}
}

// Lines of sshd without a request, of a mail server and of HAProxy. All begin like sshd's.
const (
	noLoginLine = "Mar 27 14:54:57 h sshd[1]: Server listening on 0.0.0.0 port 22.\n"
	mailLine    = "Nov 22 02:00:00 mx postfix/smtpd[17]: connect from unknown[192.0.2.1]\n"
	haproxyLine = `Nov 22 02:00:00 lb haproxy[1]: 1.2.3.4:33317 [22/Nov/2026:02:00:00.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /index.html HTTP/1.1"` + "\n"
)

// TestHalfOfALogIsEnough checks that unreadable lines are no error if half of the lines are readable or the format is
// configured. Lines of other programs in a syslog, and lines that lack only the key's field, are no error at all.
func TestHalfOfALogIsEnough(t *testing.T) {
	t.Parallel()
	const failedLogin = "Mar 27 14:54:57 h sshd[1]: Failed password for root from 1.2.3.4 port 5 ssh2\n"
	const cron = "Mar 27 14:54:58 h CRON[2]: session opened\n"
	for name, c := range map[string]struct {
		log                         string
		format                      accesslog.Format
		requests, unparsed, skipped int64
	}{
		"half": {log: line(1, alice) + "b\n", requests: 1, unparsed: 1},
		"less, the format is named": {
			log: line(1, alice) + "b\nc\n", format: accesslog.Combined, requests: 1,
			unparsed: 2,
		},
		"one line of sshd among many": {log: strings.Repeat(cron, 200) + failedLogin, requests: 1, skipped: 200},
		"users are rarely logged in": {
			log: `{"ts":1,"user":"ann"}` + strings.Repeat("\n"+`{"ts":2}`, 10), requests: 1,
			unparsed: 10,
		},
	} {
		key := "ip"
		if strings.HasPrefix(c.log, "{") {
			key = "user"
		}
		r, err := run(t.Context(), bucket, key, []string{writeFile(t, "x.log", []byte(c.log))},
			&replay.Config{Format: c.format})
		if err != nil || r.Requests != c.requests || r.Unparsed != c.unparsed || r.Skipped != c.skipped {
			t.Errorf("%s: got %+v, error %v; want %d, %d, %d", name, r, err, c.requests, c.unparsed, c.skipped)
		}
	}
}

func TestWriteAllJSONBeginsWithTheTotals(t *testing.T) {
	t.Parallel()
	log := strings.ReplaceAll(line(1, alice)+line(2, alice), "- -", "- <a>") + "x\n"
	r, err := run(t.Context(), bucket, "user", []string{writeFile(t, "a.log", []byte(log))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := replay.WriteAllJSON(&b, []*replay.Report{r}); err != nil {
		t.Fatal(err)
	}
	want := `{"requests":2,"keys":1,"allowed":1,"denied":1,"unparsed":1,"top":[{"key":"<a>","requests":2,"denied":1,`
	if !strings.HasPrefix(b.String(), want) || !json.Valid(b.Bytes()) {
		t.Errorf("got %s, want valid JSON that begins with %s", b.String(), want)
	}
}

func TestCalendarLimitFollowsTheLog(t *testing.T) {
	t.Parallel()
	// 23:30 and 00:30 in Berlin are two days there, and one in UTC.
	log := `{"ts":"2024-06-01T21:30:00Z","ip":"192.0.2.1"}` + "\n" + `{"ts":"2024-06-01T22:30:00Z","ip":"192.0.2.1"}` + "\n"
	for notation, denied := range map[string]int64{"fixed-window 1/day Europe/Berlin": 0, "fixed-window 1/day": 1} {
		r, err := run(t.Context(), headgate.MustParse(notation), "ip", []string{writeFile(t, "a.json", []byte(log))},
			nil)
		if err != nil || r.Denied != denied {
			t.Errorf("%s: got %+v, %v", notation, r, err)
		}
	}
}
