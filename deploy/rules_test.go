package deploy_test

import (
	"maps"
	"net/http"
	"testing"
)

// byRules are pairs of texts: the query that says what is charged, and what remains of it where rules do.
func byRules(set setting) []string {
	if set.rules == "" {
		return nil
	}
	return []string{
		"?limit=api&by=ip&deny=403", "?deny=403", "?limit=api&by=ip", "", "http-request set-query limit=api&by=ip", "",
	}
}

// twoLimits charges a compound key more than 1 for a request, and one key of all users beside it.
const twoLimits = `  api-all: sliding-log 13/1h
rules:
- name: users
  method: GET
  path: /users/{user}/
  limits:
  - {limit: api, key: ["path:user", ip], cost: 5}
  - {limit: api-all, key: "text:all"}
`

// TestRulesDecide: four requests of a user use up the 20 of api, each user has a key of its own, all users
// share api-all, and what is charged nothing passes.
func TestRulesDecide(t *testing.T) {
	each(t, func(t *testing.T, p *proxy) {
		s := newSite(t, p, setting{rules: twoLimits})
		for _, step := range []struct {
			method, path string
			requests     int
			want         map[int]int
		}{
			{http.MethodGet, "/users/alice/", 6, map[int]int{200: 4, 429: 2}},
			{http.MethodGet, "/users/bob/x", 5, map[int]int{200: 4, 429: 1}},
			{http.MethodPost, "/users/alice/", 3, map[int]int{200: 3}},
			{http.MethodGet, "/other", 3, map[int]int{200: 3}},
			{http.MethodGet, "//users/./carol/", 5, map[int]int{200: 4, 429: 1}},
			{http.MethodGet, "/users/dave/", 3, map[int]int{200: 1, 429: 2}}, // of 13 for all
		} {
			got := map[int]int{}
			for range step.requests {
				a, err := s.ask(step.method, step.path, "")
				if err != nil {
					t.Fatal(err)
				}
				got[a.status]++
				if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") == "" {
					t.Errorf("%s %s: no Retry-After", step.method, step.path)
				}
			}
			if !maps.Equal(got, step.want) {
				t.Errorf("%s %s: got %v, want %v", step.method, step.path, got, step.want)
			}
		}
	})
}
