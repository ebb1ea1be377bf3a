package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/api"
)

// healthNow returns the answer of /readyz, which has to be 200 at once.
func healthNow(t *testing.T, s *server) (h api.Health) {
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

// TestCommandsReportAFullLimit fills a limit of a server with max_keys=3, and checks what commands and /readyz report.
func TestCommandsReportAFullLimit(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "--store", "memory:?max_keys=3")
	for _, tt := range []struct {
		args     string
		code     int
		wantText string
	}{
		{"take LIMIT a", exitOK, "allowed"},
		{"take LIMIT b", exitOK, "reset in 1 h\n"},
		{"take LIMIT c", exitOK, "allowed"},
		{"take LIMIT d", exitError, "There is no room for this request"},
		{"take LIMIT a", exitRefused, "refused"},
		{"block e LIMIT --for 1h", exitError, "There is no room for this request"},
		{"inspect e LIMIT", exitOK, "never used"},
		{"reset b LIMIT", exitOK, "reset"},
		{"take LIMIT f", exitOK, "allowed"},
	} {
		args := strings.Fields(strings.ReplaceAll(tt.args, " LIMIT", " token-bucket_1/1h"))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		var out bytes.Buffer
		code := runMain(t.Context(), append(args, "--server", s.url), nil, &out, &out)
		if code != tt.code || !strings.Contains(out.String(), tt.wantText) {
			t.Errorf("%s: exit %d, %q; want %d and %q", tt.args, code, out.String(), tt.code, tt.wantText)
		}
	}
	if h := healthNow(t, s); len(h.Limits) != 1 || h.Limits[0].Limit != "token-bucket 1/1h burst 1" ||
		h.Limits[0].Max != 3 {
		t.Errorf("got %+v, want one full limit of 3 keys", h)
	}
	s.stop(t)
}

// TestMaxNotationsAndNotationMaxPeriod charges limits with a period that is too long, and more different limits than
// the server accepts.
func TestMaxNotationsAndNotationMaxPeriod(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "--store", "memory:", "--max-notations", "20", "--notation-max-period", "90d")
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
		t.Errorf("a period that is too long: got %+v, want 400", p)
	}
	for _, key := range []string{"a", "b", "c"} {
		if d, p := take("fixed-window 1/90d", key); !d.Allowed {
			t.Errorf("%s: got %+v, %+v, want an admission", key, d, p)
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
	if refused != 21 { // 40 less the 19 that are left of 20
		t.Errorf("%d of 40 different notations were refused, want 21", refused)
	}
	if d, _ := take("fixed-window 1/90d", "a"); d.Limit == "" || d.Allowed {
		t.Errorf("a notation that is in use: got %+v, want a refusal", d)
	}
	s.stop(t)
}
