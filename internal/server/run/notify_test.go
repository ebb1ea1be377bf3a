package run

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
)

// secretFlag returns a flag with a file that has a secret.
func secretFlag(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "notify-secret=" + file
}

// TestAReceiverThatHangsDoesNotKeepTheStoreOpen stops a server while a receiver hangs: the store is closed before the
// event is given up.
func TestAReceiverThatHangsDoesNotKeepTheStoreOpen(t *testing.T) {
	t.Parallel()
	hangs, givenUp := make(chan bool), make(chan bool)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(hangs)
		<-r.Context().Done()
		close(givenUp)
	}))
	defer receiver.Close()
	file := filepath.Join(t.TempDir(), "headgate.db")
	s := startServer(t, "limits: {login: 'fixed-window 1/30d notify 50%'}\n", "store=sqlite:"+filepath.ToSlash(file),
		"notify-url="+receiver.URL, secretFlag(t))
	if d, status := s.take(t, "login", "alice"); status != http.StatusOK || d.Crossed != 50 {
		t.Errorf("status %d, %+v", status, d)
	}
	<-hangs
	s.stop()
	await.Until(t, "the end of the store", func() bool { // which removes this file
		_, err := os.Stat(file + "-wal")
		return os.IsNotExist(err)
	})
	select {
	case <-givenUp:
		t.Error("the event was given up first")
	default:
	}
	if err := await.Receive(t, "the end", s.served); err != nil {
		t.Error(err)
	}
}

// TestACrossingIsToldEverywhere checks the answer, the log, the metric and the webhook of a crossing.
func TestACrossingIsToldEverywhere(t *testing.T) {
	t.Parallel()
	events := make(chan string, 2)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasPrefix(r.Header.Get("Webhook-Signature"), "v1,") {
			t.Errorf("%v, %v", r.Header, err)
		}
		events <- string(body)
	}))
	defer receiver.Close()
	s := startServer(t, "limits: {login: 'fixed-window 4/30d from-first notify 50%'}\n", "notify-url="+receiver.URL, secretFlag(t))
	for i, want := range []int{0, 50, 0} {
		if d, status := s.take(t, "login", "alice"); status != http.StatusOK || d.Crossed != want {
			t.Errorf("request %d: status %d, %+v, want %d", i, status, d, want)
		}
	}
	event := await.Receive(t, "the event", events)
	if !strings.Contains(event, `"data":{"limit":"login","key":"alice","percent":50,"capacity":4,"used":2,`) {
		t.Errorf("the event is %s", event)
	}
	res, err := s.client.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	for _, want := range []string{
		`headgate_thresholds_crossed_total{limit="login",percent="50"} 1`, "headgate_notifications_dropped_total 0",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the metrics have no %s: %v", want, err)
		}
	}
	if log := s.log.String(); !strings.Contains(log, `msg="crossed a threshold" limit=login key=alice percent=50`) {
		t.Errorf("the log is %s", log)
	}
	s.stop()
	if err := await.Receive(t, "the end", s.served); err != nil {
		t.Error(err)
	}
}
