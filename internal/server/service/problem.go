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

// ProblemOf describes an error to a client. It repeats the text of a client's mistake, without the names of the
// catalog's limits, and tells of a failure of the store only its class. If err wraps an api.Problem, it returns a copy
// of that.
func ProblemOf(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return new(*p) // callers change it
	}
	idProblem := func(problemType, title string, status int) *api.Problem {
		return &api.Problem{Type: problemType, Title: title, Status: status, Detail: err.Error(), Field: "id"}
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

// Class returns the text of an error's class, for logs and traces; "other" if it has none.
func Class(err error) string {
	switch class := store.Class(err); {
	case class != nil:
		return class.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded.Error()
	}
	return "other"
}

// AccessProblem describes to a client why it has no access: with status 403 for [auth.ErrForbidden], and 401 for
// [auth.ErrUnknown], for which where says where a token has to be.
func AccessProblem(err error, where string) *api.Problem {
	if !errors.Is(err, auth.ErrUnknown) {
		return ProblemOf(err)
	}
	return &api.Problem{
		Title: "Not authenticated", Status: http.StatusUnauthorized,
		Detail: "Nothing was done: " + err.Error() + ". Send a token in " + where + ".",
	}
}

// NotServedProblem describes to a client that this address does not serve an admin action. name is its path or method.
func NotServedProblem(name string) *api.Problem {
	return &api.Problem{
		Title: "Not served here", Status: http.StatusForbidden,
		Detail: "Nothing was done. This server has an address of its own for admin actions, and " + name + " is one.",
	}
}

// LogFailure logs a failure of count requests that is not the clients' fault. name is their path, method or command.
func LogFailure(log *slog.Logger, name string, err error, count int) {
	log.Error("request failed", "class", Class(err), "count", count, "path", name, "error", err)
}

// The details of invalid and forbidden requests are cut to maxDetail bytes, since they may repeat the request. All
// details in a batch are cut to maxBatchDetail bytes, since a batch may have thousands.
const (
	maxDetail      = 1000
	maxBatchDetail = 200
)

func batchProblem(err error) *api.Problem {
	p := ProblemOf(err)
	p.Detail = cut(p.Detail, maxBatchDetail)
	return p
}

// cut shortens a text that is longer than n bytes to at most n bytes, between characters, and "...".
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "..."
}
