package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/store"
)

// client asks a server over HTTP.
type client struct {
	base string
	http *http.Client
}

func newClient(server string) *client {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	return &client{strings.TrimSuffix(server, "/"), &http.Client{Timeout: 15 * time.Second}}
}

// call asks one path. A problem in the answer is the error; one about the
// request is an ErrInvalid.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, &body)
	if err != nil {
		return fmt.Errorf("%w: server: %w", headgate.ErrInvalid, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		if err := json.NewDecoder(res.Body).Decode(out); err != nil {
			return fmt.Errorf("server: answer of %s: %w", path, err)
		}
		return nil
	}
	var p api.Problem
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil || p.Title == "" {
		return fmt.Errorf("server: %s answers %s; is it a headgate server?", c.base, res.Status)
	}
	if res.StatusCode == http.StatusBadRequest {
		return fmt.Errorf("%w: %w", headgate.ErrInvalid, &p)
	}
	return fmt.Errorf("server: %s: %w", p.Title, &p)
}

func (c *client) Take(ctx context.Context, r *api.Request, check bool) (*api.Decision, error) {
	path := "/v1/take"
	if check {
		path = "/v1/check"
	}
	// Found here, a bad cost is told in the words of the flag.
	if r.Cost != "" {
		if _, err := headgate.ParseCost(r.Cost.String()); err != nil {
			return nil, err
		}
	}
	out := new(api.Decision)
	return out, c.call(ctx, http.MethodPost, path, r, out)
}

func (c *client) Inspect(ctx context.Context, r *api.Subject) (*api.Status, error) {
	out := new(api.Status)
	return out, c.call(ctx, http.MethodPost, "/v1/inspect", r, out)
}

func (c *client) Reset(ctx context.Context, r *api.Subject) (*api.Reset, error) {
	out := new(api.Reset)
	return out, c.call(ctx, http.MethodPost, "/v1/reset", r, out)
}

func (c *client) Block(ctx context.Context, r *api.Block) (*api.Status, error) {
	out := new(api.Status)
	return out, c.call(ctx, http.MethodPost, "/v1/block", r, out)
}

// List asks for all pages.
func (c *client) List(ctx context.Context, limit string, blocked bool) ([]api.Status, error) {
	q := url.Values{}
	if limit != "" {
		q.Set("limit", limit)
	}
	if blocked {
		q.Set("blocked", "true")
	}
	q.Set("max", strconv.Itoa(store.DefaultMax))
	var all []api.Status
	for {
		var page api.Cells
		if err := c.call(ctx, http.MethodGet, "/v1/cells?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Cells...)
		if len(page.Cells) < store.DefaultMax {
			return all, nil
		}
		last := all[len(all)-1]
		q.Set("after_limit", last.Limit)
		q.Set("after_key", last.Key)
	}
}

// List reads all pages out of the store.
func (l *local) List(ctx context.Context, limit string, blocked bool) ([]api.Status, error) {
	var all []api.Status
	var q store.Query
	for {
		page, err := l.Cells(ctx, limit, blocked, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Cells...)
		if len(page.Cells) < store.DefaultMax {
			return all, nil
		}
		last := all[len(all)-1]
		q.After = law.Cell{Limit: last.Limit, Key: last.Key}
	}
}
