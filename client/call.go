package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/store"
)

// maxAnswer is the most that is read of an answer, in bytes.
const maxAnswer = 64 << 20

// Call asks one path of the server and nobody else's questions with it: for
// what has no method of its own, such as /v1/reserve, /v1/settle and /v1/inspect.
// in and out are of package api; without an in, nothing is sent along.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	if c.closed.Load() {
		return errClosed
	}
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return headgate.Invalid("body", "%v", err)
		}
	}
	ctx, cancel := sched.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	text, err := c.roundTrip(ctx, method, path, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("server: %w: answer of %s: %w", store.ErrUnknownOutcome, path, err)
	}
	return nil
}

// alone asks without others.
func (c *Client) alone(ctx context.Context, check bool, charges []headgate.Charge) (headgate.Decision, error) {
	path := "/v1/take"
	if check {
		path = "/v1/check"
	}
	r := request(charges)
	var d api.Decision
	if err := c.Call(ctx, http.MethodPost, path, &r, &d); err != nil {
		return headgate.Decision{}, err
	}
	return decision(&d, charges), nil
}

// fly sends a batch.
func (c *Client) fly(parties []*flight.Party[struct{}, *part]) error {
	ctx, cancel := sched.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	text, err := c.roundTrip(ctx, http.MethodPost, "/v1/batch", bodyOf(parties))
	if err != nil {
		return err
	}
	var all api.Answers
	if !all.ScanJSON(text) {
		all = api.Answers{}
		err = json.Unmarshal(text, &all)
		for _, a := range all.Answers {
			if err == nil && a.Decision == nil && a.Problem == nil {
				err = errors.New("it is neither a decision nor a problem")
			}
		}
		if err != nil {
			return fmt.Errorf("server: %w: answer of /v1/batch: %w", store.ErrUnknownOutcome, err)
		}
	}
	if len(all.Answers) != len(parties) {
		return fmt.Errorf("server: %w: %d answers to %d requests", store.ErrUnknownOutcome, len(all.Answers),
			len(parties))
	}
	for i, p := range parties {
		p.Load.answer = all.Answers[i]
	}
	return nil
}

// roundTrip returns the text of an answer with status 200, or what is wrong.
func (c *Client) roundTrip(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	// Without a connection nothing is sent. The transport tries again only if
	// nothing was written, and so the last try counts.
	var unconnected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { unconnected.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { unconnected.Store(false) },
	})
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, headgate.Invalid("server", "%v", err)
	}
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		class := store.ErrUnknownOutcome
		if unconnected.Load() {
			class = store.ErrUnavailable
		}
		return nil, fmt.Errorf("server: %w: %w", class, err)
	}
	defer res.Body.Close()
	text := new(bytes.Buffer)
	if res.ContentLength > 0 && res.ContentLength < maxAnswer {
		text.Grow(int(res.ContentLength) + bytes.MinRead)
	}
	_, err = text.ReadFrom(io.LimitReader(res.Body, maxAnswer))
	switch {
	case res.StatusCode != http.StatusOK:
		return nil, c.refused(res, text.Bytes())
	case err != nil:
		return nil, fmt.Errorf("server: %w: %w", store.ErrUnknownOutcome, err)
	}
	return text.Bytes(), nil
}

// refused is the error of an answer with another status.
func (c *Client) refused(res *http.Response, text []byte) error {
	var p api.Problem
	if json.Unmarshal(text, &p) == nil && p.Title != "" {
		return failure(&p)
	}
	class := store.ErrSetup
	if res.StatusCode >= http.StatusInternalServerError {
		class = store.ErrUnknownOutcome // something on the way has given up
	}
	return fmt.Errorf("server: %w: %s answers %s; is it a headgate server?", class, store.RedactURL(c.base), res.Status)
}

// failure is the error of a problem.
func failure(p *api.Problem) error {
	class := store.ErrSetup
	switch {
	case p.Type == api.OutcomeUnknown:
		class = store.ErrUnknownOutcome
	case p.Type == api.Unavailable:
		class = store.ErrUnavailable
	case p.Type == api.Busy:
		class = store.ErrBusy
	case p.Type == api.Full:
		class = store.ErrFull
	case p.Type == api.IDReused:
		class = headgate.ErrReused
	case p.Type == api.IDSettled:
		class = headgate.ErrSettled
	case p.Type == api.IDUnknown:
		class = headgate.ErrUnknownID
	case p.Status == http.StatusBadRequest, p.Status == http.StatusRequestEntityTooLarge:
		return &problem{&headgate.InvalidError{Field: p.Field, Problem: strings.TrimPrefix(p.Detail, p.Field+": ")}, p}
	case p.Status == http.StatusRequestTimeout: // the question did not arrive as a whole
		class = store.ErrUnavailable
	case p.Status == http.StatusNotImplemented:
		class = headgate.ErrUnsupported
	case p.Status >= http.StatusInternalServerError:
		class = store.ErrUnknownOutcome // nothing says that it was not charged
	}
	return &problem{class, p}
}

// problem is a server's problem, of a class.
type problem struct {
	class   error
	problem *api.Problem
}

// Error implements error.
func (e *problem) Error() string {
	if wrong, ok := errors.AsType[*headgate.InvalidError](e.class); ok {
		return wrong.Error()
	}
	text := "server: " + e.problem.Title
	if e.problem.Detail != "" {
		text += ": " + e.problem.Detail
	}
	return text
}

// Unwrap implements errors.Is and errors.As: the class, and the [api.Problem].
func (e *problem) Unwrap() []error { return []error{e.class, e.problem} }
