package service_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// TestChargesCountUsage takes an estimate, extends it and settles it at what a model reports: tokens, and their price.
func TestChargesCountUsage(t *testing.T) {
	c, err := config.Parse("c.yaml", []byte("limits:\n  tokens: fixed-window 100000/1d\n  usd: fixed-window 5/1d scale 6\n"+
		"prices:\n  gpt-5*: {input: 0.25, cached_input: 0.025, output: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(headgate.New(memory.New(nil), &headgate.Config{Names: c}), c, nil)
	charge := func(limit, count string) api.Charge { return api.Charge{Limit: limit, Key: "acme", Count: count} }
	counted := []api.Charge{
		charge("tokens", "tokens"), charge("tokens", "input"), charge("tokens", "output"), charge("usd", "money"),
		{Limit: "tokens", Key: "requests"},
	}
	for i := range counted[:3] {
		counted[i].Key += counted[i].Count
	}
	request := func(usage string) *api.Request {
		return &api.Request{Charges: counted, ID: "chat", Used: api.Used{Model: "gpt-5-mini", Usage: []byte(usage)}}
	}
	expectUsed := func(want ...string) {
		t.Helper()
		for i, c := range counted {
			st, err := s.Inspect(t.Context(), &api.InspectRequest{Subject: api.Subject{Limit: c.Limit, Key: c.Key}}, nil)
			if err != nil || st.Used.String() != want[i] {
				t.Errorf("%s of %s: %+v, %v, want %s", c.Count, c.Key, st, err, want[i])
			}
		}
	}
	if d, err := s.Take(t.Context(), request(`{"input_tokens":900,"output_tokens":100}`)); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	expectUsed("1000", "900", "100", "0.000425", "1")
	if _, err := s.Extend(t.Context(), request(`{"input_tokens":900,"output_tokens":4096}`)); err != nil {
		t.Fatal(err)
	}
	expectUsed("4996", "900", "4096", "0.008417", "1")
	counted[4].Cost = "1"
	settled := &api.Settle{Charges: counted, ID: "chat", Used: api.Used{Model: "gpt-5-mini", Usage: []byte(
		`{"choices":[],"usage":{"prompt_tokens":886,"completion_tokens":300,"prompt_tokens_details":{"cached_tokens":512}}}`)}}
	if _, err := s.Settle(t.Context(), settled); err != nil {
		t.Fatal(err)
	}
	expectUsed("1186", "886", "300", "0.000707", "1") // 374 x 0.25 + 512 x 0.025 + 300 x 2 millionths, rounded up

	for _, tt := range []struct {
		charge      api.Charge
		used        api.Used
		field, says string
	}{
		{charge("tokens", "tokens"), api.Used{}, "usage", "input_tokens"},
		{charge("tokens", "tokens"), api.Used{Usage: []byte(`{"usage":{}}`)}, "usage", "input_tokens"},
		{charge("tokens", "words"), api.Used{Usage: []byte(`{"input_tokens":1}`)}, "count", "tokens, input, output or money"},
		{charge("usd", "money"), api.Used{Usage: []byte(`{"input_tokens":1}`)}, "model", "no price"},
		{charge("usd", "money"), api.Used{Usage: []byte(`{"input_tokens":1}`), Model: "gpt-4"}, "model", `"gpt-4" has no price`},
		{charge("tokens", "output"), api.Used{Usage: []byte(`{"input_tokens":1}`)}, "cost", "above 0"},
		{api.Charge{Limit: "tokens", Key: "k", Cost: "1", Count: "input"}, api.Used{}, "count", "beside a cost"},
	} {
		_, err := s.Take(t.Context(), &api.Request{Charge: tt.charge, Used: tt.used})
		if !errors.Is(err, headgate.ErrInvalid) || service.Problem(err).Field != tt.field || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v %s: %v, want %s %q", tt.charge, tt.used.Usage, err, tt.field, tt.says)
		}
	}
}
