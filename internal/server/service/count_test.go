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

// TestChargesCountUsage takes an estimate, extends it, and settles it at the tokens and the price of a model's report.
func TestChargesCountUsage(t *testing.T) {
	c, err := config.Parse("c.yaml", []byte("limits:\n  tokens: fixed-window 100000/1d\n  usd: fixed-window 5/1d scale 6\n"+
		"prices:\n  gpt-5*: {input: 0.25, cached_input: 0.025, output: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(headgate.New(memory.New(nil), &headgate.Config{Names: c}), c, nil)
	charge := func(limit, count string) api.Charge { return api.Charge{Limit: limit, Key: "acme", Count: count} }
	charges := []api.Charge{
		charge("tokens", "tokens"), charge("tokens", "input"), charge("tokens", "output"), charge("usd", "money"),
		{Limit: "tokens", Key: "requests"},
	}
	for i := range charges[:3] {
		charges[i].Key += charges[i].Count
	}
	request := func(usage string) *api.Request {
		return &api.Request{Charges: charges, ID: "chat", Used: api.Used{Model: "gpt-5-mini", Usage: []byte(usage)}}
	}
	expectUsed := func(want ...string) {
		t.Helper()
		for i, c := range charges {
			subject := api.Subject{Limit: c.Limit, Key: c.Key}
			st, err := s.Inspect(t.Context(), &api.InspectRequest{Subject: subject}, nil)
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
	charges[4].Cost = "1"
	settlement := &api.Settle{Charges: charges, ID: "chat", Used: api.Used{Model: "gpt-5-mini", Usage: []byte(
		`{"choices":[],"usage":{"prompt_tokens":886,"completion_tokens":300,"prompt_tokens_details":{"cached_tokens":512}}}`)}}
	if _, err := s.Settle(t.Context(), settlement); err != nil {
		t.Fatal(err)
	}
	// (886-512) x 0.25 + 512 x 0.025 + 300 x 2 = 706.3 millionths, rounded up.
	expectUsed("1186", "886", "300", "0.000707", "1")

	for _, tt := range []struct {
		charge      api.Charge
		used        api.Used
		field, want string
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
		if !errors.Is(err, headgate.ErrInvalid) || service.ProblemOf(err).Field != tt.field ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v %s: got %v, want %s %q", tt.charge, tt.used.Usage, err, tt.field, tt.want)
		}
	}
}
