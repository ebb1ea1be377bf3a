package rest_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheFirstAlternativeThatPassesIsTaken(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	body := `{"charges":[{"limit":"fixed-window 1/1h from-first","key":"a","alternative":1},
		{"limit":"fixed-window 1/30m from-first","key":"a","cost":0.75,"alternative":2}],"id":"%s"}`
	for _, want := range []string{"first 1 true <nil> 1", "second 2 true <nil> 2", "second 2 true true 1", "third 2 false <nil> 2"} {
		id, _, _ := strings.Cut(want, " ")
		code, out, _ := send(h, "POST", "/v1/take", fmt.Sprintf(body, id))
		each, _ := out["each"].([]any)
		if got := fmt.Sprint(id, " ", out["alternative"], " ", out["allowed"], " ", out["replayed"], " ", len(each)); got != want {
			t.Errorf("got %d, %s, %v; want %s", code, got, out, want)
		}
	}
	for _, bad := range []string{
		`{"limit":"fixed-window 1/1h","key":"a","alternative":2}`,
		`{"limit":"fixed-window 1/1h","key":"a","alternative":256}`,
		`{"charges":[{"limit":"fixed-window 1/1h","key":"b","alternative":1},{"limit":"fixed-window 2/1h","key":"b"}]}`,
	} {
		if code, out, _ := send(h, "POST", "/v1/check", bad); code != 400 || out["field"] != "alternative" {
			t.Errorf("%s: got %d, %v, want 400", bad, code, out)
		}
	}
}
