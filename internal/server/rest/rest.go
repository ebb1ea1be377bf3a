// Package rest is the HTTP API: it reads and writes JSON, and problems of RFC 9457. It bounds the body of a request and
// the memory of all requests in flight, see [Config]. Package edge checks hosts and origins before.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store"
)

// Config adjusts the handler of New. It may be nil, and every field may be zero.
type Config struct {
	// Load bounds how many requests are decided at a time, which begins when their bodies have arrived, and how many
	// bytes the requests in flight hold together, in their bodies and while they are decided; the first 4 KiB and 8
	// charges of each are not counted. Requests beyond the bounds are answered 503 at once. Nil: load.New(0, 0).
	Load *load.Load
	// Problem returns what is wrong with the configuration, for /readyz. The server is ready nevertheless, with what it
	// can use of it, or the former one. Nil, or empty: nothing is wrong.
	Problem func() string
	// Away returns since when and why the store cannot be used, or nil. Its argument is the error of a request that has
	// just failed, or nil. Nil: outages are not described.
	Away func(error) *api.Away
	// Auth is for forward authentication: see package forwardauth.
	Auth forwardauth.Config
	// Tokens lists the callers with their tokens and certificates. A caller by a Unix socket needs neither.
	// Nil: every caller may do everything.
	Tokens *auth.File
	// OtherRoutes are routes of other packages.
	OtherRoutes []Route
}

// Route is a route of another package.
type Route struct {
	Pattern string    // pattern of http.ServeMux, with a method
	Role    auth.Role // role that a caller needs; requests for [auth.Anyone] are answered also under full load
	// AllLimits says that the caller must be one that may touch all limits.
	AllLimits bool
	// Turn waits until a request may be served, before any memory is held for it. end is called when the request is
	// done. Nil: requests do not wait.
	Turn func(*http.Request) (end func(), err error)
	// Handler reads a body of at most MaxBody bytes.
	Handler http.HandlerFunc
	MaxBody int64
	// Answer returns JSON, or the error of the request. If set, it replaces Handler, and Role is not auth.Anyone.
	Answer func(http.ResponseWriter, *http.Request) ([]byte, error)
}

// Proxied returns the paths that proxies request with the headers of an end user: see [edge.Config].
func Proxied() []string { return []string{forwardauth.Path} }

// server serves the routes.
type server struct {
	Config
	service      *service.Service
	log          *slog.Logger
	writeTimeout time.Duration // how long writing an answer may take,
	writeRate    int           // plus a second for each writeRate bytes
	auth         *forwardauth.Handler
}

// New returns the handler of all paths. It logs a line for each request that fails by an error of the server, so log
// should be limited by package lograte.
func New(s *service.Service, log *slog.Logger, c *Config) http.Handler {
	srv := newServer(s, log, c)
	return handler(srv.routes())
}

func newServer(s *service.Service, log *slog.Logger, c *Config) *server {
	srv := &server{Config: *cmp.Or(c, &Config{}), service: s, log: log}
	srv.writeTimeout, srv.writeRate = 5*time.Second, 256<<10
	if srv.Problem == nil {
		srv.Problem = func() string { return "" }
	}
	if srv.Away == nil {
		srv.Away = func(error) *api.Away { return nil }
	}
	srv.Load = cmp.Or(srv.Load, load.New(0, 0))
	srv.Auth.Log = cmp.Or(srv.Auth.Log, log)
	srv.auth = forwardauth.New(s, &srv.Auth)
	return srv
}

// withShare returns a handler that calls do with a share of the load, and answers its error with a problem.
func (srv *server) withShare(do func(w http.ResponseWriter, r *http.Request, s *load.Share) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := srv.Load.Share()
		defer s.Release()
		if err := do(w, r, &s); err != nil {
			srv.fail(w, r, err)
		}
	}
}

// serveBody returns a handler that reads a T from a body of at most limit bytes, and answers with what do returns.
func serveBody[T, Out any](srv *server, limit int64, do func(context.Context, *T) (*Out, error)) http.HandlerFunc {
	return serveBodyShare(srv, limit,
		func(ctx context.Context, in *T, _ *load.Share) (any, error) { return do(ctx, in) })
}

// serveBodyShare is like serveBody, and passes do the share of the load to count the answer in.
func serveBodyShare[T any](srv *server, limit int64, do func(context.Context, *T, *load.Share) (any, error),
) http.HandlerFunc {
	return srv.withShare(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		in := new(T)
		if err := readRequest(w, r, limit, s, in); err != nil {
			return err
		}
		return srv.decide(w, r, s, func(ctx context.Context) (any, error) { return do(ctx, in, s) })
	})
}

// decide calls do with the deadline of a request, counts the request as being decided meanwhile, and writes the result.
func (srv *server) decide(w http.ResponseWriter, r *http.Request, s *load.Share,
	do func(context.Context) (any, error),
) error {
	if err := s.Enter(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), service.Deadline)
	defer cancel()
	out, err := do(ctx)
	if err != nil {
		return err
	}
	s.Leave()
	return srv.answer(w, out)
}

// readRequest parses a body, counts the request as being decided, and holds the memory to decide it.
func readRequest(w http.ResponseWriter, r *http.Request, limit int64, s *load.Share, to any) error {
	var b body
	defer b.free()
	if err := b.read(w, r, limit, s); err != nil {
		return err
	}
	surplus := max(0, s.Bytes()-int64(b.Len())) // the parsed texts are no longer than the body
	if err := s.Enter(); err != nil {
		return err
	}
	if err := s.HoldObjects(bytes.Count(b.Bytes(), []byte("{"))); err != nil {
		return err
	}
	defer func() { _ = s.Hold(-surplus) }() // cannot fail
	return api.Read(b.Bytes(), to)
}

// batch serves batches. It logs one line for each class of errors that are not the client's.
func (srv *server) batch(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	b := new(api.Batch)
	if err := readRequest(w, r, maxListBytes, s, b); err != nil {
		return err
	}
	return srv.decide(w, r, s, func(ctx context.Context) (any, error) {
		failures := map[error][]error{} // by class
		got, err := srv.service.Batch(ctx, b, func(err error) {
			if class := store.Class(err); !clientGone(r, err) {
				failures[class] = append(failures[class], err)
			}
		})
		for _, errs := range failures {
			service.LogFailure(srv.log, r.URL.Path, errs[0], len(errs))
		}
		return got, err
	})
}

// healthyStatus is the status of a healthy server.
const healthyStatus = "ok"

// live answers that the process runs.
func (srv *server) live(w http.ResponseWriter, r *http.Request) {
	if err := srv.answer(w, &api.Health{Status: healthyStatus}); err != nil {
		srv.fail(w, r, err)
	}
}

// hiddenDetail is the text of a problem for a caller that may not know the names of limits, files and keys.
const hiddenDetail = "something is wrong with it; the log says what, and so does /readyz to a token of the role read"

// ready answers whether the store can decide and write. For callers that may read, it also lists the limits that are
// full or nearly full, which does not make the server unready.
func (srv *server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), service.ReadyTimeout)
	defer cancel()
	health := &api.Health{Status: healthyStatus, Config: srv.Problem()}
	mayRead := srv.mayRead(r)
	if health.Config != "" && !mayRead {
		health.Config = hiddenDetail
	}
	err := srv.service.Healthy(ctx)
	if err == nil && mayRead {
		health.Limits, err = srv.service.NearlyFull(ctx)
	}
	if err == nil {
		err = srv.answer(w, health)
	}
	if errors.Is(err, store.ErrFull) {
		p := service.ProblemOf(err)
		p.Title = "The store is full"
		p.Detail = "It takes no new keys: its memory is full, or it keeps as many as it may, and each still counts. " +
			"Keys that it has are decided."
		if away := srv.Away(err); away != nil && mayRead {
			p.Detail = away.Text + " " + p.Detail
		}
		edge.WriteProblem(w, p)
		return
	}
	if err != nil {
		srv.fail(w, r, err)
	}
}

// answer writes an answer as JSON. If it returns an error, nothing was written.
func (srv *server) answer(w http.ResponseWriter, v any) error {
	text := answerBuffers.Get().(*bytes.Buffer)
	text.Reset()
	enc := json.NewEncoder(text)
	enc.SetEscapeHTML(false) // these escapes can make a text six times as long
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	srv.write(w, text.Bytes())
	if text.Cap() <= maxPooledBytes {
		answerBuffers.Put(text)
	}
	return nil
}

// answerBuffers are buffers for answers.
var answerBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooledBytes is the size of the largest buffer that is used again.
const maxPooledBytes = 256 << 10

// Values of headers. All answers share them, so they must not be changed.
var (
	typeJSON = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// write writes JSON as an answer.
func (srv *server) write(w http.ResponseWriter, text []byte) {
	if len(text) > load.FreeBytes {
		// A client that does not read occupies the memory of its request. An error means that w has no connection.
		_ = http.NewResponseController(w).SetWriteDeadline(
			time.Now().Add(srv.writeTimeout + time.Duration(len(text)/srv.writeRate)*time.Second))
	}
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	if _, err := w.Write(text); err != nil {
		srv.log.Debug("write answer", "error", err)
	}
}

// fail answers with a problem, and logs a failure of the server. It answers even if the client seems to be gone: one
// that has only closed its side would take an empty answer for an admission.
func (srv *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := service.ProblemOf(err)
	if _, isProblem := errors.AsType[*api.Problem](err); p.Status >= 500 && !isProblem && !clientGone(r, err) {
		service.LogFailure(srv.log, r.URL.Path, err, 1)
	}
	if p.Type == api.Unavailable || p.Type == api.OutcomeUnknown {
		if away := srv.Away(err); away != nil && srv.mayRead(r) {
			p.Detail = away.Text + " " + p.Detail
		}
	}
	edge.WriteProblem(w, p)
}

// clientGone reports whether a request failed because its client has closed the connection, or its side of it.
func clientGone(r *http.Request, err error) bool {
	return errors.Is(err, context.Canceled) && r.Context().Err() != nil
}

// withProblems returns a handler that answers the 404 and 405 of the mux with problem details.
func withProblems(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern != "" {
			r.Pattern = pattern // as mux.ServeHTTP does, which would look it up again
			h.ServeHTTP(w, r)
			return
		}
		rec := &statusRecorder{header: http.Header{}, code: http.StatusNotFound}
		mux.ServeHTTP(rec, r)
		for _, name := range []string{"Allow", "Location"} {
			if value := rec.header.Get(name); value != "" {
				w.Header().Set(name, value)
			}
		}
		edge.WriteProblem(w, &api.Problem{
			Title: http.StatusText(rec.code), Status: rec.code,
			Detail: fmt.Sprintf("%.20s %.200s; GET /openapi.yaml describes what there is", r.Method, r.URL.Path),
		})
	})
}

// statusRecorder records the header and the status of an answer, and discards its body.
type statusRecorder struct {
	header http.Header
	code   int
}

func (s *statusRecorder) Header() http.Header         { return s.header }
func (s *statusRecorder) WriteHeader(code int)        { s.code = code }
func (s *statusRecorder) Write(b []byte) (int, error) { return len(b), nil }
