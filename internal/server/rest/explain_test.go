package rest_test

import (
	"strings"
	"testing"
)

// TestExplain asks about the request that the description has as its example.
func TestExplain(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "limits: {login: sliding-log 5/15m}\n\n\nrules:\n  - name: login\n    path: /login\n"+
		"    limits: [{limit: login, key: ip}]\n")
	const body = `{"method":"POST","uri":"https://example.org/login","headers":["X-Api-Key: k1"],"client":"192.0.2.1"}`
	for range 2 { // the first has charged nothing
		code, out, _ := ask(h, "POST", "/v1/explain", body)
		d, _ := out["decision"].(map[string]any)
		if code != 200 || out["allowed"] != true || out["rule"] != "login" || out["at"] != "c.yaml:5:5" ||
			d["capacity"] != 5.0 || d["remaining"] != 5.0 {
			t.Errorf("status %d: %v", code, out)
		}
	}
	for body, field := range map[string]string{
		`{"uri":"/"}`: "method", `{"method":"GET","uri":"x"}`: "uri", `{"method":"GET","uri":"/","client":"x"}`: "client",
		`{"method":"GET","uri":"/","rules":[]}`:                                                "body",
		`{"method":"GET","uri":"/","headers":[` + strings.Repeat(`"A: b",`, 1000) + `"A: b"]}`: "headers",
	} {
		if code, out, _ := ask(h, "POST", "/v1/explain", body); code != 400 || out["field"] != field {
			t.Errorf("%.50s: status %d: %v", body, code, out)
		}
	}
}
