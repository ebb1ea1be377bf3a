// Package rest is the HTTP door: JSON in, JSON out, problems as RFC 9457 has
// them.
package rest

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/service"
	"github.com/headgate/headgate/store"
)

// maxBody is the most that a request may send, in bytes.
const maxBody = 4 << 20

// deadline is how long the store may take.
const deadline = 10 * time.Second

//go:embed openapi.yaml
var openapi []byte

// New returns the handler of all paths. Errors of the store are logged.
func New(s *service.Service, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	d := &door{log}
	handle(mux, d, "POST /v1/take", func(ctx context.Context, r *api.Request) (any, error) { return s.Take(ctx, r, false) })
	handle(mux, d, "POST /v1/check", func(ctx context.Context, r *api.Request) (any, error) { return s.Take(ctx, r, true) })
	mux.HandleFunc("POST /v1/batch", func(w http.ResponseWriter, r *http.Request) { d.batch(w, r, s) })
	handle(mux, d, "POST /v1/reserve", func(ctx context.Context, r *api.Reserve) (any, error) { return s.Reserve(ctx, r) })
	handle(mux, d, "POST /v1/settle", func(ctx context.Context, r *api.Settle) (any, error) { return s.Settle(ctx, r) })
	handle(mux, d, "POST /v1/cancel", func(ctx context.Context, r *api.Settle) (any, error) { return s.Cancel(ctx, r) })
	handle(mux, d, "POST /v1/acquire", func(ctx context.Context, r *api.Request) (any, error) { return s.Acquire(ctx, r) })
	handle(mux, d, "POST /v1/renew", func(ctx context.Context, r *api.Leases) (any, error) { return s.Renew(ctx, r) })
	handle(mux, d, "POST /v1/release", func(ctx context.Context, r *api.Leases) (any, error) { return s.Release(ctx, r) })
	handle(mux, d, "POST /v1/inspect", func(ctx context.Context, r *api.Subject) (any, error) { return s.Inspect(ctx, r) })
	handle(mux, d, "POST /v1/reset", func(ctx context.Context, r *api.Subject) (any, error) { return s.Reset(ctx, r) })
	handle(mux, d, "POST /v1/block", func(ctx context.Context, r *api.Block) (any, error) { return s.Block(ctx, r) })
	mux.HandleFunc("GET /v1/limits", func(w http.ResponseWriter, _ *http.Request) { d.answer(w, http.StatusOK, s.Limits()) })
	mux.HandleFunc("GET /v1/cells", func(w http.ResponseWriter, r *http.Request) { d.cells(w, r, s) })
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { d.answer(w, http.StatusOK, well) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { d.ready(w, r, s) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { d.ready(w, r, s) })
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openapi)
	})
	return problems(mux)
}

// well is what a health check answers when all is well.
var well = map[string]string{"status": "ok"}

// readyWithin is how long the store may take to prove that it can write.
const readyWithin = 2 * time.Second

// ready tells whether the store can decide and write.
func (d *door) ready(w http.ResponseWriter, r *http.Request, s *service.Service) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	if err := s.Healthy(ctx); err != nil {
		d.fail(w, r, err)
		return
	}
	d.answer(w, http.StatusOK, well)
}

// handle serves a path that takes a T.
func handle[T any](mux *http.ServeMux, d *door, pattern string, do func(context.Context, *T) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		in := new(T)
		if err := decode(http.MaxBytesReader(w, r.Body, maxBody), in); err != nil {
			d.fail(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), deadline)
		defer cancel()
		out, err := do(ctx, in)
		if err != nil {
			d.fail(w, r, err)
			return
		}
		d.answer(w, http.StatusOK, out)
	})
}

type door struct{ log *slog.Logger }

func (d *door) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		d.log.Debug("write answer", "error", err)
	}
}

func (d *door) fail(w http.ResponseWriter, r *http.Request, err error) {
	var large *http.MaxBytesError
	p := service.Problem(err)
	switch {
	case errors.As(err, &large):
		p = &api.Problem{Title: "Request too large", Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("at most %d bytes are read", large.Limit)}
	case errors.Is(err, context.Canceled):
		return // nobody is there to read it
	case p.Status >= 500:
		d.log.Error("request failed", "path", r.URL.Path, "error", err)
	}
	problem(w, p)
}

func problem(w http.ResponseWriter, p *api.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}

// decode reads one JSON value and nothing else. Unknown fields are errors
// that name them.
func decode(r io.Reader, v any) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, end := dec.Token(); !errors.Is(end, io.EOF) {
			return service.Invalid("body", "something follows the JSON value")
		}
		return nil
	}
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &large):
		return err
	case errors.Is(err, io.EOF):
		return service.Invalid("body", "is empty; send JSON such as {\"limit\":\"token-bucket 5/1m\",\"key\":\"alice\"}")
	case errors.As(err, &kind):
		field := kind.Field[strings.LastIndexByte(kind.Field, '.')+1:]
		return service.Invalid(cmp.Or(field, "body"), "must not be a %s", kind.Value)
	case errors.As(err, &syntax):
		return service.Invalid("body", "is not JSON (at byte %d): %v", syntax.Offset, err)
	case strings.Contains(err.Error(), "unknown field"):
		return service.Invalid("body", "has an %s", strings.TrimPrefix(err.Error(), "json: "))
	case strings.Contains(err.Error(), "invalid number literal"):
		return service.Invalid("cost", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return service.Invalid("body", "%v", err)
}

func (d *door) cells(w http.ResponseWriter, r *http.Request, s *service.Service) {
	query := r.URL.Query()
	q := store.Query{After: law.Cell{Limit: query.Get("after_limit"), Key: query.Get("after_key")}}
	blocked := false
	for name, values := range query {
		var err error
		switch name {
		case "limit", "after_limit", "after_key":
		case "blocked":
			blocked, err = strconv.ParseBool(values[0])
		case "max":
			if q.Max, err = strconv.Atoi(values[0]); err == nil && (q.Max < 1 || q.Max > 10000) {
				err = errors.New("out of range")
			}
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			d.fail(w, r, service.Invalid(name, "%q: known are limit, blocked (true, false), max (1 to 10000), after_limit, after_key", values[0]))
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	cells, err := s.Cells(ctx, query.Get("limit"), blocked, q)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	d.answer(w, http.StatusOK, cells)
}

// problems turns the mux's own plain 404 and 405 into problem details.
func problems(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		rec := &statusOnly{header: http.Header{}, code: http.StatusNotFound}
		mux.ServeHTTP(rec, r)
		if allow := rec.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
		}
		problem(w, &api.Problem{Title: http.StatusText(rec.code), Status: rec.code, Detail: r.Method + " " + r.URL.Path + "; GET /openapi.yaml describes what there is"})
	})
}

type statusOnly struct {
	header http.Header
	code   int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(code int)        { s.code = code }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
