package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

type httpTransport struct {
	base         string
	token        string
	http         *http.Client
	ownTransport *http.Transport // nil if http is Config.HTTPClient
}

// bufferSize is the size of a connection's buffers: most batches take one write and a few reads.
const bufferSize = 32 << 10

// newHTTP returns a transport to a base URL, over a Unix socket unless socket is empty.
func newHTTP(base, socket string, cfg *Config) *httpTransport {
	t := &httpTransport{base: base, token: cfg.Token, http: cfg.HTTPClient}
	if t.http != nil && socket == "" {
		return t
	}
	t.ownTransport = &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     cfg.TLS.Clone(), // works for nil too
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: cfg.Connections + 1, // one for calls outside of batches
		IdleConnTimeout:     time.Minute,         // below the server's, which else may close a connection in use
		TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     bufferSize,
		ReadBufferSize:      bufferSize,
	}
	if socket != "" {
		t.ownTransport.Proxy = nil
		t.ownTransport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialUnix(ctx, socket)
		}
	}
	t.http = &http.Client{Transport: t.ownTransport}
	return t
}

func (t *httpTransport) close() {
	if t.ownTransport != nil {
		t.ownTransport.CloseIdleConnections()
	}
}

func (t *httpTransport) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	var err error
	switch {
	case in == nil:
	case method == http.MethodGet:
		path += "?" + api.Values(in).Encode()
	default:
		if body, err = json.Marshal(in); err != nil {
			return headgate.Invalid("body", "%v", err)
		}
	}
	text, err := t.roundTrip(ctx, method, path, body)
	if err != nil {
		return err
	}
	if answers, ok := out.(*api.Answers); ok { // api.Read takes a third of the time, and fails if there are new fields
		if api.Read(text, answers) == nil {
			return nil
		}
		*answers = api.Answers{}
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("server: %w: answer of %s: %w", store.ErrUnknownOutcome, path, err)
	}
	return nil
}

// roundTrip returns the text of an answer with status 200. Any other status is an error.
func (t *httpTransport) roundTrip(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	// Without a connection nothing is sent. The transport tries again only if nothing was written, so only its last
	// attempt counts.
	var unconnected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { unconnected.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { unconnected.Store(false) },
	})
	req, err := http.NewRequestWithContext(ctx, method, t.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, headgate.Invalid("server", "%v", err)
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := t.http.Do(req)
	if err != nil {
		if urlErr, ok := errors.AsType[*url.Error](err); ok { // its text shows the user of the URL
			err = urlErr.Err
		}
		if unconnected.Load() {
			err = fmt.Errorf("server: %s cannot be reached: %w", store.RedactURL(t.base), err)
			return nil, &classedError{store.ErrUnavailable, err}
		}
		return nil, fmt.Errorf("server: %w: %s %s%s: %w", store.ErrUnknownOutcome, method, store.RedactURL(t.base),
			path, err)
	}
	defer res.Body.Close()
	text := new(bytes.Buffer)
	if res.ContentLength > 0 && res.ContentLength < maxAnswer {
		text.Grow(int(res.ContentLength) + bytes.MinRead)
	}
	_, err = text.ReadFrom(io.LimitReader(res.Body, maxAnswer))
	switch {
	case res.StatusCode != http.StatusOK:
		return nil, t.statusError(res, text.Bytes())
	case err != nil:
		return nil, fmt.Errorf("server: %w: %w", store.ErrUnknownOutcome, err)
	}
	return text.Bytes(), nil
}

// classedError has a class for errors.Is that its text does not show. The text "store unavailable" would mean the store
// of the server, not the server.
type classedError struct {
	class error
	error
}

// Unwrap returns the class and the cause.
func (e *classedError) Unwrap() []error { return []error{e.class, e.error} }

// statusError returns the error for an answer whose status is not 200.
func (t *httpTransport) statusError(res *http.Response, text []byte) error {
	var p api.Problem
	if json.Unmarshal(text, &p) == nil && p.Title != "" {
		return problemError(&p)
	}
	class := store.ErrSetup
	if res.StatusCode >= http.StatusInternalServerError {
		class = store.ErrUnknownOutcome // a proxy on the way has given up
	}
	return fmt.Errorf("server: %w: %s answers %s; is it a headgate server?", class, store.RedactURL(t.base), res.Status)
}
