package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestLogFormatJSONWritesOnlyJSON checks that every line that a server writes is JSON.
func TestLogFormatJSONWritesOnlyJSON(t *testing.T) {
	t.Parallel()
	s := launch(t, t.TempDir(), "--log-format", "json", "--log-refused", "1", "--log-admitted", "0")
	s.waitUntil(t, "that it listens", func() bool {
		_, rest, found := strings.Cut(s.out.String(), `"http":"`)
		addr, _, ended := strings.Cut(rest, `"`)
		s.url = "http://" + addr
		return found && ended
	})
	for range 3 {
		if _, status, err := s.take(http.DefaultClient, `{"limit":"fixed-window 1/30d","key":"a\nb"}`); status != 200 {
			t.Fatal(status, err)
		}
	}
	decisions := 0
	for line := range strings.Lines(s.stop(t)) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%q is not JSON: %v", line, err)
		}
		if fields["msg"] == "decision" {
			decisions++
			if fields["outcome"] != "refused" || fields["key"] != `"a\nb"` || fields["protocol"] != "http" {
				t.Errorf("got %s, want a refusal of the key by HTTP", line)
			}
		}
	}
	if decisions != 2 {
		t.Errorf("got %d logged decisions, want the 2 refusals", decisions)
	}
}
