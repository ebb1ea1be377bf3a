package rest_test

import (
	"strings"
	"testing"
)

// TestExplain checks the explanation of the request that is the example of the OpenAPI document.
func TestExplain(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "limits: {login: sliding-log 5/15m}\n\n\nrules:\n  - name: login\n    path: /login\n"+
		"    limits: [{limit: login, key: ip}]\n")
	const body = `{"method":"POST","uri":"https://example.org/login","headers":["X-Api-Key: k1"],"client":"192.0.2.1"}`
	for range 2 { // twice, since an explanation charges nothing
		code, out, _ := send(h, "POST", "/v1/explain", body)
		decision, _ := out["decision"].(map[string]any)
		if code != 200 || out["allowed"] != true || out["rule"] != "login" || out["at"] != "c.yaml:5:5" ||
			decision["capacity"] != 5.0 || decision["remaining"] != 5.0 {
			t.Errorf("status %d: %v, want 200, allowed by login with 5 of 5 remaining", code, out)
		}
	}
	for body, field := range map[string]string{
		`{"uri":"/"}`: "method", `{"method":"GET","uri":"x"}`: "uri", `{"method":"GET","uri":"/","client":"x"}`: "client",
		`{"method":"GET","uri":"/","rules":[]}`:                                                "body",
		`{"method":"GET","uri":"/","headers":[` + strings.Repeat(`"A: b",`, 1000) + `"A: b"]}`: "headers",
	} {
		if code, out, _ := send(h, "POST", "/v1/explain", body); code != 400 || out["field"] != field {
			t.Errorf("%.50s: status %d: %v, want 400 about %s", body, code, out, field)
		}
	}
}
