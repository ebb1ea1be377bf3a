// Package webhook posts an event to a URL for each threshold that a charge has crossed, signed as
// https://www.standardwebhooks.com says. It never holds up a decision.
//
// While the process lives and the queue has room, the receiver gets each event at least once, within the tries of one.
// After an answer that was lost it gets the event again, with the same webhook-id.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pause"
)

const (
	maxQueued  = 1024 // events that wait; one more is dropped
	workers    = 4    // events that are sent at a time
	maxTries   = 10   // with their pauses two or three minutes
	firstPause = 500 * time.Millisecond
	maxPause   = time.Minute // also for a Retry-After
	tryTimeout = 10 * time.Second
	drainTime  = 3 * time.Second // for what waits when the server stops
)

// Config says where events go.
type Config struct {
	URL     string // http or https
	Key     []byte // of the signature; see [ReadSecret]
	Log     *slog.Logger
	Dropped func()            // called for each event that is given up, by many goroutines
	Via     http.RoundTripper // nil: http.DefaultTransport
}

// ReadSecret returns the key that a file has, as whsec_ and 24 to 64 bytes in base64.
func ReadSecret(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	digits, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "whsec_")
	key, err := base64.StdEncoding.DecodeString(digits)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("%s: has no secret: write whsec_ and the output of openssl rand -base64 32", file)
	}
	return key, nil
}

// Sender posts events. It is a headgate.CrossingObserver, and safe for concurrent use.
type Sender struct {
	cfg    Config
	client http.Client
	ctx    context.Context // ends when the sender is closed and drained, or has no more time for that
	cancel context.CancelCauseFunc
	done   sync.WaitGroup

	mu     sync.RWMutex // held to send to the queue, and to close it
	queue  chan event
	closed bool // guarded by mu
}

// event is a webhook, as each try sends it.
type event struct {
	id   string
	body []byte
}

// New returns a Sender, which must be closed.
func New(c Config) *Sender {
	s := &Sender{cfg: c, queue: make(chan event, maxQueued)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.client = http.Client{
		Transport: c.Via, Timeout: tryTimeout,
		// A redirection is an error: the signature is for this receiver.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for range workers {
		s.done.Go(func() {
			for e := range s.queue {
				s.deliver(e)
			}
		})
	}
	return s
}

// Decided implements headgate.Observer. Decisions are not sent.
func (s *Sender) Decided(context.Context, headgate.Event) {}

// Crossed implements headgate.CrossingObserver. It queues the event, or drops it if the queue is full.
func (s *Sender) Crossed(_ context.Context, c headgate.Crossing) {
	type data struct {
		Limit    string      `json:"limit"`
		Key      string      `json:"key"`
		Percent  int         `json:"percent"`
		Capacity json.Number `json:"capacity"`
		Used     json.Number `json:"used"`
		At       int64       `json:"at"` // microseconds since 1970
	}
	body, err := json.Marshal(struct {
		Type      string `json:"type"`
		Timestamp string `json:"timestamp"`
		Data      data   `json:"data"`
	}{"headgate.threshold.crossed", c.At.Format(time.RFC3339Nano), data{
		c.Limit, c.Key, c.Percent, json.Number(c.Capacity.String()), json.Number(c.Used.String()), c.At.UnixMicro(),
	}})
	e := event{"msg_" + rand.Text(), body}
	if err != nil {
		s.drop(e, err)
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		s.drop(e, errStopped)
		return
	}
	select {
	case s.queue <- e:
	default:
		s.drop(e, errFull)
	}
}

var (
	errFull    = errors.New("the queue is full")
	errStopped = errors.New("the server stops")
)

// drop counts and logs an event that is given up.
func (s *Sender) drop(e event, err error) {
	s.cfg.Dropped()
	s.cfg.Log.Warn("an event was not delivered to notify_url", "id", e.id, "error", err)
}

// Close sends what is queued, for a few seconds at most, and drops the rest. It must be called once.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	close(s.queue)
	s.mu.Unlock()
	timer := time.AfterFunc(drainTime, func() { s.cancel(errStopped) })
	s.done.Wait()
	timer.Stop()
	s.cancel(nil)
}

// deliver sends an event until the receiver has it, or drops it.
func (s *Sender) deliver(e event) {
	for try := 1; ; try++ {
		wait, err := s.try(e)
		if err == nil {
			return
		}
		if wait < 0 || try == maxTries || pause.Sleep(s.ctx, max(wait, backoff(try))) != nil {
			s.drop(e, err)
			return
		}
	}
}

// backoff returns the pause after a try: half of the longest one at least, so that not all senders come at once.
func backoff(try int) time.Duration {
	longest := min(firstPause<<(try-1), maxPause)
	return longest/2 + mathrand.N(longest/2+1)
}

// try sends an event once. With an error, it returns how long the receiver wants to be left alone, or less than 0 if
// another try makes no sense.
func (s *Sender) try(e event) (wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(e.body))
	if err != nil {
		return -1, err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, s.cfg.Key)
	fmt.Fprintf(mac, "%s.%s.%s", e.id, at, e.body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "headgate")
	r.Header.Set("Webhook-Id", e.id)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	answer, err := s.client.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok { // the URL may have a secret
			err = e.Err
		}
		return 0, err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // so that the connection can be used again
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		return 0, nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
		return min(retryAfter(answer.Header.Get("Retry-After")), maxPause), errors.New(answer.Status)
	default:
		return -1, errors.New(answer.Status)
	}
}

// retryAfter returns the pause that a field Retry-After asks for, as seconds or as a date; 0 if it has neither.
func retryAfter(field string) time.Duration {
	if seconds, err := strconv.ParseUint(field, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(field); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
