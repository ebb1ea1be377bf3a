package headgate_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
)

// randomNotation returns a random notation. Most of its results are valid.
func randomNotation(r *rand.Rand) string {
	amount := fmt.Sprint(1 + r.IntN(1_000_000))
	if r.IntN(3) == 0 {
		amount = headgate.Units(1+r.Int64N(1_000_000)).String() + "." + fmt.Sprint(1+r.IntN(999))
	}
	period := fmt.Sprint(1+r.IntN(90), []string{"ms", "s", "m", "h", "d"}[r.IntN(5)])
	algorithm := []string{
		"token-bucket", "leaky-bucket", "gcra", "fixed-window", "interval", "sliding-window",
		"sliding-log", "concurrency",
	}[r.IntN(8)]
	if algorithm == "concurrency" {
		return fmt.Sprint("concurrency ", 1+r.IntN(1000), " ttl ", period)
	}
	text := algorithm + " " + amount + "/" + period
	switch r.IntN(4) {
	case 0:
		text += map[string]string{
			"token-bucket": " burst ", "leaky-bucket": " capacity ", "gcra": " burst ",
			"interval": " burst ",
		}[algorithm]
		if strings.HasSuffix(text, " ") {
			text += fmt.Sprint(1 + r.IntN(2_000_000))
		}
	case 1:
		text += " block " + fmt.Sprint(1+r.IntN(90), "m")
	case 2:
		if algorithm == "fixed-window" {
			text = "fixed-window " + amount + "/" + []string{
				"day Europe/Berlin", "month",
				"week America/New_York",
			}[r.IntN(3)]
		}
	}
	return text
}

func TestLimitsAndCostsRoundTripAsText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	type pair struct {
		Limit headgate.Limit
		Cost  headgate.Cost
	}
	for n := 0; n < tier.Pick(1000, 10_000, 100_000); {
		name := ""
		if r.IntN(2) == 0 {
			name = fmt.Sprint("limit-", r.IntN(1000), ".x")
		}
		l, err := headgate.ParseNamed(name, randomNotation(r))
		if err != nil {
			continue
		}
		n++
		c := headgate.MustCost(fmt.Sprintf("%d.%0*d", r.Int64N(1_000_000), 1+r.IntN(9), 1+r.IntN(9)))
		text, err := json.Marshal(pair{l, c})
		if err != nil {
			t.Fatal(err)
		}
		var got pair
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got.Cost != c || got.Limit.Name() != l.Name() || got.Limit.Named() != l.Named() ||
			got.Limit.String() != l.String() || got.Limit.Params() != l.Params() {
			t.Fatalf("%s: got %v %v %v, want %v %v %v", text, got.Cost, got.Limit.Name(), got.Limit, c, l.Name(), l)
		}
	}
}

func TestUnmarshalTextOfLimitsAndCosts(t *testing.T) {
	for _, tt := range []struct{ text, want, wrongField string }{
		{text: "", want: ""},
		{text: "login = token-bucket 5/1m", want: "login = token-bucket 5/1m burst 5"},
		{text: "login = sliding-log 5/1m", want: "login = sliding-log 5/1m"},
		{text: "Login = token-bucket 5/1m", wrongField: "name"},
		{text: "token-bucket 5", wrongField: "limit"},
		{text: "token-bucket 5/1m; max_keys 7", wrongField: "limit"},
	} {
		l := headgate.MustParse("gcra 1/s")
		err := l.UnmarshalText([]byte(tt.text))
		if tt.wrongField != "" {
			if invalid, ok := errors.AsType[*headgate.InvalidError](err); !ok || invalid.Field != tt.wrongField ||
				l.String() != "gcra 1/s burst 1" {
				t.Errorf("%q: %v, %v; want an error about %s, and the limit as it was", tt.text, l, err, tt.wrongField)
			}
			continue
		}
		if got, _ := l.MarshalText(); err != nil || string(got) != tt.want {
			t.Errorf("%q: %q, %v, want %q", tt.text, got, err, tt.want)
		}
	}
	for _, tt := range []struct {
		text  string
		want  headgate.Cost
		valid bool // if false, the cost stays as it was
	}{
		{"", headgate.Cost{}, true},
		{"0", headgate.Units(0), true},
		{"2.50", headgate.MustCost("2.5"), true},
		{"-1", headgate.Units(7), false},
		{"1e3", headgate.Units(1000), true},
		{"1e", headgate.Units(7), false},
	} {
		c := headgate.Units(7)
		if err := c.UnmarshalText([]byte(tt.text)); c != tt.want || (err == nil) != tt.valid || !tt.valid &&
			!errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%q: got %v, %v; want %v, an error: %v", tt.text, c, err, tt.want, !tt.valid)
		}
	}
	if text, err := headgate.Units(-1).MarshalText(); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a negative cost: %q, %v; want ErrInvalid", text, err)
	}
}

func ExampleLimit_Set() {
	limit, cost := headgate.MustParse("token-bucket 100/1m"), headgate.Units(1)
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.Var(&limit, "limit", "the `limit` of each key")
	flags.Var(&cost, "cost", "the `cost` of a request")
	if err := flags.Parse([]string{"-limit", "login = sliding-log 5/15m", "-cost", "0.5"}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(limit.Name(), limit, cost)
	// Output: login sliding-log 5/15m 0.5
}

func TestMustParseNamed(t *testing.T) {
	t.Parallel()
	l := headgate.MustParseNamed("login", "sliding-log 5/15m")
	if l.Name() != "login" || l.String() != "sliding-log 5/15m" {
		t.Errorf("got %s = %s, want login = sliding-log 5/15m", l.Name(), l)
	}
	for name, notation := range map[string]string{"login": "sliding-log 5", "Log in": "sliding-log 5/15m"} {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, headgate.ErrInvalid) {
					t.Errorf("%s = %s: it panics with %v, want ErrInvalid", name, notation, err)
				}
			}()
			headgate.MustParseNamed(name, notation)
		}()
	}
}
