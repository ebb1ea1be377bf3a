package service

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/store"
)

// Problem describes an error to a client. It reports a mistake of the client in full, and leaves details of other
// errors to the log. It returns a copy of an error that is a Problem.
func Problem(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return new(*p) // callers change it
	}
	idProblem := func(kind, title string, status int) *api.Problem {
		return &api.Problem{Type: kind, Title: title, Status: status, Detail: err.Error(), Field: "id"}
	}
	switch {
	case errors.Is(err, headgate.ErrInvalid):
		detail := err.Error()
		if errors.Is(err, headgate.ErrUnknownLimit) { // a caller may not learn the names of other limits
			detail, _, _ = strings.Cut(detail, "; the catalog has ")
		}
		p := &api.Problem{Title: "Bad request", Status: http.StatusBadRequest, Detail: cut(detail, maxDetail)}
		if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
			p.Field = wrong.Field
		}
		return p
	case errors.Is(err, auth.ErrForbidden):
		return &api.Problem{
			Title: "Not permitted", Status: http.StatusForbidden,
			Detail: "Nothing was done: " + cut(err.Error(), maxDetail),
		}
	case errors.Is(err, headgate.ErrUnsupported):
		return &api.Problem{Title: "Not supported by this store", Status: http.StatusNotImplemented}
	case errors.Is(err, headgate.ErrUnknownID):
		return idProblem(api.IDUnknown, "Not found", http.StatusNotFound)
	case errors.Is(err, store.ErrVersion):
		return &api.Problem{
			Title: "Conflict", Status: http.StatusConflict, Field: "seen",
			Detail: "The catalog was changed since it was read" +
				strings.TrimPrefix(err.Error(), store.ErrVersion.Error()) + "; look at it again. Nothing was changed.",
		}
	case errors.Is(err, headgate.ErrReused):
		return idProblem(api.IDReused, "Conflict", http.StatusConflict)
	case errors.Is(err, headgate.ErrSettled):
		return idProblem(api.IDSettled, "Conflict", http.StatusConflict)
	}
	if store.NothingDone(err) {
		p := &api.Problem{
			Type: api.Unavailable, Title: "The store is not available",
			Status: http.StatusServiceUnavailable, Detail: "Nothing was charged.",
		}
		switch {
		case errors.Is(err, store.ErrBusy):
			p.Type, p.Title = api.Busy, "Too many are waiting for the store"
		case errors.Is(err, store.ErrNoSpace):
			p.Title = "The store is not available: its disk is full"
		case errors.Is(err, store.ErrFull):
			p.Type, p.Title = api.Full, "There is no room for this request"
			p.Detail = "Nothing was charged. The server keeps as many keys, or remembers as many attempts and ids, " +
				"as it may, and each still counts. Ask again when some count no more, or let the operator give the " +
				"store in memory more (memory:?max_keys=N&max_bytes=M), or use a database."
		}
		return p
	}
	p := &api.Problem{
		Type: api.OutcomeUnknown, Title: "The store did not answer", Status: http.StatusServiceUnavailable,
		Detail: "It is not known whether anything was charged.",
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		p.Title, p.Status = "The store did not answer in time", http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		p.Title = "The client closed the connection before the answer"
	}
	return p
}

// Class names the class of an error in logs.
func Class(err error) string {
	switch class := store.Class(err); {
	case class != nil:
		return class.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded.Error()
	}
	return "other"
}

// Forbidden describes to a client why its request is not permitted. err is an [auth.ErrForbidden], or an
// [auth.ErrUnknown], for which where says where a token has to be.
func Forbidden(err error, where string) *api.Problem {
	if !errors.Is(err, auth.ErrUnknown) {
		return Problem(err)
	}
	return &api.Problem{
		Title: "Not authenticated", Status: http.StatusUnauthorized,
		Detail: "Nothing was done: " + err.Error() + ". Send a token in " + where + ".",
	}
}

// NotServedHere describes to a client that this address does not serve an admin action, a path or a method.
func NotServedHere(name string) *api.Problem {
	return &api.Problem{
		Title: "Not served here", Status: http.StatusForbidden,
		Detail: "Nothing was done. This server has an address of its own for admin actions, and " + name + " is one.",
	}
}

// LogFailure logs that count requests to a path have failed, and not by a client's mistake.
func LogFailure(log *slog.Logger, path string, err error, count int) {
	log.Error("request failed", "class", Class(err), "count", count, "path", path, "error", err)
}

// The texts of problems are cut to this many bytes, since they may repeat a request, or name all limits. Texts in a
// batch are shorter, since a batch may have thousands.
const (
	maxDetail = 1000
	maxBrief  = 200
)

// batchProblem returns the Problem of an error in a batch.
func batchProblem(err error) *api.Problem {
	p := Problem(err)
	p.Detail = cut(p.Detail, maxBrief)
	return p
}

// cut shortens a text to at most n bytes and a mark.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "..."
}
