// Package clients has no code in Go. Its tests run the tests of the clients in other languages against
// a server, and the vectors that all clients pass.
package clients

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// vectors are the test vectors of testdata/vectors.json, which explains them.
type vectors struct {
	About      []string         `json:"about"`
	Arithmetic []decisionVector `json:"arithmetic"`
	Headers    []headerVector   `json:"headers"`
	Errors     []errorVector    `json:"errors"`
	Answers    []answerVector   `json:"answers"`
}

// decisionVector is a sequence of requests with whole answers.
type decisionVector struct {
	Name  string `json:"name"`
	Steps []step `json:"steps"`
}

type step struct {
	AtMS int64           `json:"at_ms"`
	Verb string          `json:"verb"`
	In   json.RawMessage `json:"in"`
	Want json.RawMessage `json:"want"`
}

type headerVector struct {
	Name  string `json:"name"`
	Steps []struct {
		AtMS  int64             `json:"at_ms"`
		Query string            `json:"query"`
		Want  map[string]string `json:"want"`
	} `json:"steps"`
}

type errorVector struct {
	Name string          `json:"name"`
	Verb string          `json:"verb"`
	In   json.RawMessage `json:"in"`
	Want struct {
		Error  string `json:"error"`
		Status int    `json:"status"`
		Type   string `json:"type"`
		Field  string `json:"field"`
	} `json:"want"`
}

type answerVector struct {
	Name   string `json:"name"`
	Status int    `json:"status"`
	Body   any    `json:"body"`
	Error  string `json:"error"`
}

const vectorsFile = "../testdata/vectors.json"

func readVectors(t *testing.T) *vectors {
	t.Helper()
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

// epoch is the first time of a store's clock, in microseconds.
const epoch = 1795600000_000000

// testServer is a server with a clock that tests set, and with paths of its own, most of whose answers are errors.
type testServer struct {
	api    atomic.Pointer[http.Handler]
	offset atomic.Int64 // time since epoch, in milliseconds
	mux    http.ServeMux
}

// newTestServer returns a server that demands no tokens.
func newTestServer(v *vectors) *testServer {
	s := &testServer{}
	s.reset()
	s.mux.HandleFunc("POST /test/new", func(http.ResponseWriter, *http.Request) { s.reset() })
	s.mux.HandleFunc("POST /test/clock", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		ms, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.offset.Store(ms)
	})
	s.mux.HandleFunc("/test/answer/{n}/v1/{verb}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		a := v.Answers[n]
		if text, ok := a.Body.(string); ok {
			if text[0] == '{' {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(a.Status)
			_, _ = io.WriteString(w, text)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(a.Status)
		_ = json.NewEncoder(w).Encode(a.Body)
	})
	// One path closes the connection after the request, the other never answers.
	s.mux.HandleFunc("/test/stopped/", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
	s.mux.HandleFunc("/test/silent/", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	s.mux.HandleFunc("/test/token/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]bool{"existed": r.Header.Get("Authorization") == "Bearer secret"})
	})
	s.mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) { (*s.api.Load()).ServeHTTP(w, r) })
	return s
}

// reset replaces the store by an empty one, and sets the clock to epoch.
func (s *testServer) reset() {
	s.offset.Store(0)
	m := memory.New(&memory.Config{Names: true, Clock: func() int64 { return epoch + s.offset.Load()*1000 }})
	l := headgate.New(m, &headgate.Config{Timeout: time.Minute})
	h := rest.New(service.New(l, &config.Config{}, nil), slog.New(slog.DiscardHandler), nil)
	s.api.Store(&h)
}

// serve serves a testServer over TCP, and returns its URL.
func serve(t *testing.T, v *vectors) string {
	t.Helper()
	server := httptest.NewUnstartedServer(&newTestServer(v).mux)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

// saveVectors writes the vectors with the answers of this run, if UPDATE_VECTORS is set. Else its error says how to.
func saveVectors(v *vectors) error {
	if os.Getenv("UPDATE_VECTORS") == "" {
		return errors.New("UPDATE_VECTORS=1 go test ./clients -run Vectors writes what is answered now")
	}
	f, err := os.Create(vectorsFile)
	if err != nil {
		return err
	}
	defer f.Close()
	enc := json.NewEncoder(f)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
