// Package rest is the interface by HTTP: JSON in, JSON out, problems as RFC 9457 has
// them. What a request may send and what all requests in flight may hold is bounded,
// see [Config]. Who may ask at all is not decided here, see package edge.
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

// Config bounds what requests in flight take together. A nil Config, and every zero
// field, is fine.
type Config struct {
	// Load bounds how many requests may be decided at a time, counted from when their bodies have
	// arrived, and how many bytes the requests in flight may hold together, in their bodies and while
	// they are decided, the first 4 KiB and 8 charges of each not counted. Those that find no room are
	// answered 503 at once. Nil: one of its own, as load.New(0, 0) returns it.
	Load *load.Load
	// Problem says what is wrong with the configuration, for /readyz: a server that goes on
	// with what it had before is ready all the same. Nil, or empty: nothing.
	Problem func() string
	// Away says since when and why the store cannot be used, for callers that may look. It gets the error of a
	// request that has just failed by that, nil of none. Nil, or nil returned: the store can be used.
	Away func(error) *api.Away
	// Auth is for forward authentication: see package forwardauth.
	Auth forwardauth.Config
	// Tokens are what callers show to be let in, unless they come by a Unix socket or show a
	// certificate that is listed there. Nil: everybody may do everything.
	Tokens *auth.File
	// More are served beside the paths of this package.
	More []Route
}

// Route is something that another package serves.
type Route struct {
	Pattern string    // of http.ServeMux, with a method
	Role    auth.Role // that a caller needs; [auth.Anyone] is answered however much there is to do
	All     bool      // the caller must be one that may touch all limits
	// Turn waits until a request may be served, before anything is held for it, and returns what is called afterwards.
	// Nil: at once.
	Turn func(*http.Request) (end func(), err error)
	// Handler reads a body of at most this many bytes.
	Handler http.HandlerFunc
	MaxBody int64
	// Answer is called in the place of Handler if it is not nil, and returns JSON, or the error of the request. It
	// needs a role.
	Answer func(http.ResponseWriter, *http.Request) ([]byte, error)
}

// Proxied returns the paths that proxies ask with the headers of an end user: see [edge.Config].
func Proxied() []string { return []string{forwardauth.Path} }

// door serves requests.
type door struct {
	Config
	service  *service.Service
	log      *slog.Logger
	patience time.Duration // with a client that reads its answer: so long,
	rate     int           // and a second more for each rate bytes
	auth     *forwardauth.Handler
}

// New returns the handler of all paths. What goes wrong here is logged, a line for
// each failed request: see package lograte for a log that stands that.
func New(s *service.Service, log *slog.Logger, c *Config) http.Handler {
	d := newDoor(s, log, c)
	return handler(d.routes())
}

func newDoor(s *service.Service, log *slog.Logger, c *Config) *door {
	d := &door{Config: *cmp.Or(c, &Config{}), service: s, log: log, patience: 5 * time.Second, rate: 256 << 10}
	if d.Problem == nil {
		d.Problem = func() string { return "" }
	}
	if d.Away == nil {
		d.Away = func(error) *api.Away { return nil }
	}
	d.Load = cmp.Or(d.Load, load.New(0, 0))
	d.Auth.Log = cmp.Or(d.Auth.Log, log)
	d.auth = forwardauth.New(s, &d.Auth)
	return d
}

// with serves what takes a share of the load, and fails with an error.
func (d *door) with(do func(w http.ResponseWriter, r *http.Request, s *load.Share) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := d.Load.Share()
		defer s.Release()
		if err := do(w, r, &s); err != nil {
			d.fail(w, r, err)
		}
	}
}

// post serves what takes a T in at most limit bytes.
func post[T, Out any](d *door, limit int64, do func(context.Context, *T) (*Out, error)) http.HandlerFunc {
	return posted(d, limit, func(ctx context.Context, in *T, _ *load.Share) (any, error) { return do(ctx, in) })
}

// posted serves what takes a T in at most limit bytes, and gives do the share of the request to count the answer in.
func posted[T any](d *door, limit int64, do func(context.Context, *T, *load.Share) (any, error)) http.HandlerFunc {
	return d.with(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		in := new(T)
		if err := take(w, r, limit, s, in); err != nil {
			return err
		}
		return d.decided(w, r, s, func(ctx context.Context) (any, error) { return do(ctx, in, s) })
	})
}

// decided counts a request among those that are being decided, calls do with its deadline, and writes the result.
func (d *door) decided(w http.ResponseWriter, r *http.Request, s *load.Share,
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
	return d.answer(w, out)
}

// take reads a body, and counts the request among those that are being decided. What
// it holds until the end is what it takes to decide it.
func take(w http.ResponseWriter, r *http.Request, limit int64, s *load.Share, to any) error {
	var b body
	defer b.free()
	if err := b.read(w, r, limit, s); err != nil {
		return err
	}
	text := max(0, s.Bytes()-int64(b.Len())) // what was read out of it lives on
	if err := s.Enter(); err != nil {
		return err
	}
	if err := s.HoldObjects(bytes.Count(b.Bytes(), []byte("{"))); err != nil {
		return err
	}
	defer func() { _ = s.Hold(-text) }() // which cannot fail
	return api.Read(b.Bytes(), to)
}

// batch serves batches. Of what fails for a reason that is not the client's a line is logged for each class.
func (d *door) batch(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	b := new(api.Batch)
	if err := take(w, r, maxList, s, b); err != nil {
		return err
	}
	return d.decided(w, r, s, func(ctx context.Context) (any, error) {
		failed := map[error][]error{} // by class
		got, err := d.service.Batch(ctx, b, func(err error) {
			if class := store.Class(err); !gone(r, err) {
				failed[class] = append(failed[class], err)
			}
		})
		for _, errs := range failed {
			service.LogFailure(d.log, r.URL.Path, errs[0], len(errs))
		}
		return got, err
	})
}

// ok is the status of a server that is well.
const ok = "ok"

// live says that the process answers.
func (d *door) live(w http.ResponseWriter, r *http.Request) {
	if err := d.answer(w, &api.Health{Status: ok}); err != nil {
		d.fail(w, r, err)
	}
}

// hidden is the text of a problem for a caller that may not know the names of limits, files and keys.
const hidden = "something is wrong with it; the log says what, and so does /readyz to a token of the role read"

// ready answers whether the store can decide and write, and which limits are full or
// nearly: that is no reason to ask elsewhere.
func (d *door) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), service.ReadyWithin)
	defer cancel()
	health := &api.Health{Status: ok, Config: d.Problem()}
	looks := d.mayLook(r)
	if health.Config != "" && !looks {
		health.Config = hidden
	}
	err := d.service.Healthy(ctx)
	if err == nil && looks {
		health.Limits, err = d.service.NearlyFull(ctx)
	}
	if err == nil {
		err = d.answer(w, health)
	}
	if errors.Is(err, store.ErrFull) {
		p := service.Problem(err)
		p.Title = "The store is full"
		p.Detail = "It takes no new keys: its memory is full, or it keeps as many as it may, and each still counts. " +
			"Keys that it has are decided."
		if away := d.Away(err); away != nil && looks {
			p.Detail = away.Text + " " + p.Detail
		}
		edge.WriteProblem(w, p)
		return
	}
	if err != nil {
		d.fail(w, r, err)
	}
}

// answer writes an answer. It fails before anything is written, or not at all.
func (d *door) answer(w http.ResponseWriter, v any) error {
	text := texts.Get().(*bytes.Buffer)
	text.Reset()
	enc := json.NewEncoder(text)
	enc.SetEscapeHTML(false) // by these escapes a text could grow to six times its length
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	d.write(w, text.Bytes())
	if text.Cap() <= maxKept {
		texts.Put(text)
	}
	return nil
}

// texts are buffers for answers.
var texts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKept is how large a buffer may be that is used again.
const maxKept = 256 << 10

// Values of headers. Each is in the headers of all answers, so nothing may change it.
var (
	typeJSON = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// write writes an answer.
func (d *door) write(w http.ResponseWriter, text []byte) {
	if len(text) > load.FreeBytes {
		// A client that does not read holds what the request took. Only a connection has a deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(
			time.Now().Add(d.patience + time.Duration(len(text)/d.rate)*time.Second))
	}
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	if _, err := w.Write(text); err != nil {
		d.log.Debug("write answer", "error", err)
	}
}

// fail answers with a problem, also a client that seems to be gone: one that has only
// closed its side would take an empty answer for an admission.
func (d *door) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := service.Problem(err)
	if _, told := errors.AsType[*api.Problem](err); p.Status >= 500 && !told && !gone(r, err) {
		service.LogFailure(d.log, r.URL.Path, err, 1)
	}
	if p.Type == api.Unavailable || p.Type == api.OutcomeUnknown {
		if away := d.Away(err); away != nil && d.mayLook(r) {
			p.Detail = away.Text + " " + p.Detail
		}
	}
	edge.WriteProblem(w, p)
}

// gone reports whether a request failed because its client has closed the connection,
// or its side of it.
func gone(r *http.Request, err error) bool {
	return errors.Is(err, context.Canceled) && r.Context().Err() != nil
}

// problems turns the mux's own plain 404 and 405 into problem details.
func problems(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern != "" {
			r.Pattern = pattern // as mux.ServeHTTP does, which would look it up again
			h.ServeHTTP(w, r)
			return
		}
		rec := &statusOnly{header: http.Header{}, code: http.StatusNotFound}
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

type statusOnly struct {
	header http.Header
	code   int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(code int)        { s.code = code }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
