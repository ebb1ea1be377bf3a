package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/server/api"
)

// health asks a server how it is.
func health(t *testing.T, s *server) (h api.Health) {
	t.Helper()
	res, err := http.Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(text, &h) != nil {
		t.Fatalf("readyz: %d, %s, %v", res.StatusCode, text, err)
	}
	return h
}

var sharedKey = regexp.MustCompile(`headgate:shared:[0-9]+`)

// TestTheCommandLineTellsOfFullLimits fills a limit of a server that has no config file.
func TestTheCommandLineTellsOfFullLimits(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"memory:", "sqlite:headgate.db"} {
		s := start(t, t.TempDir(), "--store", url, "--max-keys", "3")
		shared := "" // the key of the shared cell, as list shows it
		for _, tt := range []struct {
			args string
			code int
			says string
		}{
			{"take LIMIT a", exitOK, "allowed"},
			{"take LIMIT b", exitOK, "full again in 1h0m0s\n"},
			{"take LIMIT c", exitOK, "allowed"},
			{"take LIMIT d", exitOK, "shared with other new keys since the limit is full"},
			{"take LIMIT e", exitRefused, "shared with other new keys since the limit is full"},
			{"inspect LIMIT e", exitOK, "shared     the limit is full; this is of the cell that its new keys share"},
			{"inspect LIMIT a", exitOK, "key        a\nused       0.99"},
			{"list", exitOK, " (new keys)"},
			{"inspect LIMIT SHARED", exitOK, "remaining  0"},
			{"take LIMIT SHARED", exitError, "kept for cells that keys share"},
			{"take LIMIT e --id x", exitError, "There is no room for this key"},
			{"reset LIMIT SHARED", exitOK, "reset"},
			{"take LIMIT f", exitOK, "shared with"}, // a refusal of e is repeated for a second
		} {
			args := strings.Fields(tt.args)
			for i := range args {
				switch args[i] {
				case "LIMIT":
					args[i] = "token-bucket 1/1h"
				case "SHARED":
					args[i] = shared
				}
			}
			ask := func() (code int, said string) {
				var out bytes.Buffer
				code = run(t.Context(), append(args, "--server", s.url), nil, &out, &out)
				return code, out.String()
			}
			code, said := ask()
			if args[0] == "inspect" { // a little of what is used drains
				await.Until(t, tt.says, func() bool {
					code, said = ask()
					return code != tt.code || strings.Contains(said, tt.says)
				})
			}
			if code != tt.code || !strings.Contains(said, tt.says) {
				t.Errorf("%s: %s: exit %d, %q; want %d and %q", url, tt.args, code, said, tt.code, tt.says)
			}
			if key := sharedKey.FindString(said); key != "" {
				shared = key
			}
		}
		if h := health(t, s); len(h.Limits) != 1 || h.Limits[0].Limit != "token-bucket 1/1h burst 1" ||
			!h.Limits[0].Sharing || h.Limits[0].Max != 3 {
			t.Errorf("%s: %+v", url, h)
		}
		s.stop(t)
	}
}

// TestNotationsOfRequestsAreBounded asks a server for what would be kept for long, and
// for more different limits than it takes.
func TestNotationsOfRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "--store", "memory:", "--max-notations", "20", "--notation-max-keys", "2",
		"--notation-max-period", "90d")
	take := func(limit, key string) (api.Decision, api.Problem) {
		res, err := http.Post(s.url+"/v1/take", "application/json",
			strings.NewReader(fmt.Sprintf(`{"limit":%q,"key":%q}`, limit, key)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		var d api.Decision
		var p api.Problem
		if res.StatusCode == http.StatusOK {
			err = json.Unmarshal(text, &d)
		} else {
			err = json.Unmarshal(text, &p)
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return d, p
	}
	if _, p := take("fixed-window 1/3660d", "k"); p.Status != http.StatusBadRequest || p.Field != "limit" ||
		!strings.Contains(p.Detail, "90 days at most (notation_max_period)") {
		t.Errorf("a long one: %+v", p)
	}
	for i, key := range []string{"a", "b", "c"} {
		if d, p := take("fixed-window 1/90d", key); !d.Allowed || d.Shared != (i == 2) {
			t.Errorf("%s: %+v, %+v", key, d, p)
		}
	}
	refused := 0
	for i := range 40 {
		if _, p := take(fmt.Sprintf("fixed-window %d/1h", i+1), "k"); p.Status == http.StatusBadRequest &&
			strings.Contains(p.Detail, "20 different notations are in use") &&
			strings.Contains(p.Detail, "(max_notations)") {
			refused++
		}
	}
	if refused != 21 { // one was asked for before
		t.Errorf("%d of 40 different notations were refused, want 21", refused)
	}
	if d, _ := take("fixed-window 1/90d", "a"); d.Limit == "" || d.Allowed {
		t.Errorf("one that is in use: %+v", d)
	}
	s.stop(t)
}
