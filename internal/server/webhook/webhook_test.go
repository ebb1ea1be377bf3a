package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/webhook"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var key = []byte("a key of 32 bytes, as openssl...")

// receiver answers the tries of a sender. It checks the signature of each.
type receiver struct {
	t      *testing.T
	answer func(try int, r *http.Request) (status int, err error)
	header http.Header // of each answer

	mu    sync.Mutex
	tries []time.Time
	got   map[string]int // tries by the key of the event that were answered 2xx
	ids   map[string]string
}

// RoundTrip implements http.RoundTripper.
func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	id, at := req.Header.Get("Webhook-Id"), req.Header.Get("Webhook-Timestamp")
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "." + string(body)))
	seconds, _ := strconv.ParseInt(at, 10, 64)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); req.Header.Get("Webhook-Signature") != want ||
		!strings.HasPrefix(id, "msg_") || time.Until(time.Unix(seconds, 0)).Abs() > time.Second ||
		req.Header.Get("Content-Type") != "application/json" || req.URL.String() != "https://ops.example/hook" {
		r.t.Errorf("%s %v, want the signature %s", req.URL, req.Header, want)
	}
	var e struct{ Data struct{ Key string } }
	if err := json.Unmarshal(body, &e); err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	r.tries = append(r.tries, time.Now())
	try := len(r.tries)
	if before, again := r.ids[e.Data.Key]; again && before != id {
		r.t.Errorf("event %s has the ids %s and %s", e.Data.Key, before, id)
	}
	r.ids[e.Data.Key] = id
	r.mu.Unlock()
	status, err := r.answer(try, req)
	if err != nil {
		return nil, err
	}
	if status < 300 {
		r.mu.Lock()
		r.got[e.Data.Key]++
		r.mu.Unlock()
	}
	return &http.Response{StatusCode: status, Status: strconv.Itoa(status), Header: r.header, Body: http.NoBody}, nil
}

// newSender returns a sender to a receiver, and the number of events that were dropped.
func newSender(t *testing.T, answer func(try int, r *http.Request) (int, error)) (
	s *webhook.Sender, r *receiver, dropped *atomic.Int64,
) {
	r = &receiver{t: t, answer: answer, got: map[string]int{}, ids: map[string]string{}, header: http.Header{}}
	dropped = new(atomic.Int64)
	return webhook.New(webhook.Config{
		URL: "https://ops.example/hook", Key: key, Log: slog.New(slog.DiscardHandler), Via: r,
		Dropped: func() { dropped.Add(1) },
	}), r, dropped
}

// crossing returns a crossing of a key that has a number.
func crossing(n int) headgate.Crossing {
	return headgate.Crossing{
		Limit: "day", Key: fmt.Sprint(n), Percent: 80, Capacity: headgate.Units(100), Used: headgate.MustCost("80.5"),
		At: time.UnixMicro(1_700_000_000_123_456).UTC(),
	}
}

func TestTheBodyOfAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var body []byte
		s, _, _ := newSender(t, func(_ int, r *http.Request) (int, error) {
			b, err := r.GetBody()
			if err != nil {
				return 0, err
			}
			body, err = io.ReadAll(b)
			return http.StatusOK, err
		})
		s.Crossed(t.Context(), crossing(7))
		s.Close()
		const want = `{"type":"headgate.threshold.crossed","timestamp":"2023-11-14T22:13:20.123456Z","data":{"limit":"day",` +
			`"key":"7","percent":80,"capacity":100,"used":80.5,"at":1700000000123456}}`
		if string(body) != want {
			t.Errorf("got  %s\nwant %s", body, want)
		}
	})
}

// TestAReceiverThatFailsHalfOfTheTimeGetsEachEvent sends 500 events to a receiver whose every other answer is a failure
// of another kind.
func TestAReceiverThatFailsHalfOfTheTimeGetsEachEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := []int{0, 408, 429, 500, 503}
		s, r, dropped := newSender(t, func(try int, _ *http.Request) (int, error) {
			if try%2 == 0 {
				return http.StatusOK, nil
			}
			if status := failures[try/2%len(failures)]; status != 0 {
				return status, nil
			}
			return 0, errors.New("connection reset")
		})
		for n := range 500 {
			s.Crossed(t.Context(), crossing(n))
		}
		time.Sleep(time.Hour)
		s.Close()
		for n := range 500 {
			if r.got[fmt.Sprint(n)] != 1 {
				t.Errorf("event %d was received %d times", n, r.got[fmt.Sprint(n)])
			}
		}
		if dropped.Load() != 0 || len(r.tries) < 900 {
			t.Errorf("%d events dropped, %d tries", dropped.Load(), len(r.tries))
		}
	})
}

// TestPausesBetweenTries checks how long and how often a sender tries, for each kind of failure.
func TestPausesBetweenTries(t *testing.T) {
	for _, tt := range []struct {
		status, tries int
		retryAfter    string
		least, most   time.Duration // from the first try to the last
	}{
		{status: 503, tries: 10, least: 91 * time.Second, most: 184 * time.Second},
		{status: 0, tries: 10, least: 91 * time.Second, most: 184 * time.Second},
		{status: 429, tries: 10, retryAfter: "20", least: 209 * time.Second, most: 261 * time.Second},
		{status: 429, tries: 10, retryAfter: "Sat, 01 Jan 2000 00:00:40 GMT", least: 100 * time.Second, most: 261 * time.Second},
		{status: 503, tries: 10, retryAfter: "86400", least: 540 * time.Second, most: 541 * time.Second},
		{status: 400, tries: 1},
		{status: 410, tries: 1},
		{status: 302, tries: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, r, dropped := newSender(t, func(int, *http.Request) (int, error) {
				if tt.status == 0 {
					return 0, io.ErrUnexpectedEOF
				}
				return tt.status, nil
			})
			r.header.Set("Retry-After", tt.retryAfter)
			s.Crossed(t.Context(), crossing(1))
			time.Sleep(time.Hour)
			synctest.Wait()
			took := r.tries[len(r.tries)-1].Sub(r.tries[0])
			if len(r.tries) != tt.tries || took < tt.least || took > tt.most || dropped.Load() != 1 {
				t.Errorf("%+v: %d tries in %s, %d dropped", tt, len(r.tries), took, dropped.Load())
			}
			s.Close()
		})
	}
}

// TestAFullQueueDropsAndCounts fills the queue while the receiver does not answer, which never blocks.
func TestAFullQueueDropsAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		s, r, dropped := newSender(t, func(int, *http.Request) (int, error) { <-block; return http.StatusOK, nil })
		for n := range 4 {
			s.Crossed(t.Context(), crossing(n))
		}
		synctest.Wait() // each worker has an event
		begin := time.Now()
		for n := range 1024 + 3 {
			s.Crossed(t.Context(), crossing(4+n))
		}
		if dropped.Load() != 3 || time.Since(begin) != 0 {
			t.Errorf("%d dropped after %s", dropped.Load(), time.Since(begin))
		}
		close(block)
		s.Close()
		if len(r.got) != 1024+4 || dropped.Load() != 3 {
			t.Errorf("got %d events, %d dropped", len(r.got), dropped.Load())
		}
		s.Crossed(t.Context(), crossing(0))
		if dropped.Load() != 4 {
			t.Error("an event after Close is not counted as dropped")
		}
	})
}

// TestCloseDrains checks that Close sends what is queued, and gives up after three seconds.
func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, dropped := newSender(t, func(_ int, r *http.Request) (int, error) {
			select {
			case <-r.Context().Done():
				return 0, r.Context().Err()
			case <-time.After(1400 * time.Millisecond): // two events of each worker
				return http.StatusOK, nil
			}
		})
		for n := range 10 {
			s.Crossed(t.Context(), crossing(n))
		}
		synctest.Wait()
		begin := time.Now()
		s.Close()
		if took := time.Since(begin); took != 3*time.Second || dropped.Load() != 2 {
			t.Errorf("Close took %s, %d dropped", took, dropped.Load())
		}
	})
}

func TestReadSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for text, valid := range map[string]bool{
		"whsec_" + base64.StdEncoding.EncodeToString(key) + "\n": true,
		base64.StdEncoding.EncodeToString(key):                   false,
		"whsec_" + base64.StdEncoding.EncodeToString(key[:23]):   false,
		"whsec_!" + base64.StdEncoding.EncodeToString(key):       false,
		"": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := webhook.ReadSecret(file)
		if (err == nil) != valid || valid && string(got) != string(key) ||
			err != nil && strings.Contains(err.Error(), "YSBr") { // the secret
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	if _, err := webhook.ReadSecret(file + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

var _ headgate.CrossingObserver = (*webhook.Sender)(nil)
