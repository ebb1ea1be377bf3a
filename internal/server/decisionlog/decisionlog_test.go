package decisionlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/decisionlog"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// logLines returns the lines that do logs, as "outcome limit key cost: why", and the fields of the last line.
func logLines(t *testing.T, c decisionlog.Config, do func(l *headgate.Limiter)) (lines []string, last map[string]any) {
	t.Helper()
	var out bytes.Buffer
	c.Log = slog.New(slog.NewJSONHandler(&out, nil))
	do(headgate.New(memory.New(nil), &headgate.Config{Observer: decisionlog.New(c)}))
	for line := range strings.Lines(out.String()) {
		last = nil
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(last["outcome"], " ", last["limit"], " ", last["key"], " ", last["cost"], ": ",
			last["why"]))
	}
	return lines, last
}

func TestALineSaysWhy(t *testing.T) {
	two, five := headgate.MustParse("fixed-window 2/30d"), headgate.MustParse("fixed-window 5/30d")
	chargeTwo := func(cost string) headgate.Charge {
		return headgate.Charge{Limit: two, Key: "k", Cost: headgate.MustCost(cost)}
	}
	var keep headgate.Headroom
	if err := keep.UnmarshalText([]byte("1")); err != nil {
		t.Fatal(err)
	}
	got, last := logLines(t, decisionlog.Config{Refused: 1, Admitted: 1}, func(l *headgate.Limiter) {
		ctx := service.WithProtocol(t.Context(), service.ProtocolGRPC)
		_, _ = l.Take(ctx, headgate.Charge{Limit: two, Key: "a", Cost: headgate.MustCost("1.5"), Keep: keep})
		_, _ = l.Take(ctx, headgate.Charge{Limit: five, Key: "a", Cost: headgate.MustCost("3")})
		_, _ = l.Take(ctx, headgate.Charge{Limit: five, Key: "a", Cost: headgate.MustCost("1.5"), Keep: keep})
		_, _ = l.Take(ctx, chargeTwo("1.5"))
		_, _ = l.Take(ctx, chargeTwo("1"))
		_, _ = l.Take(ctx, chargeTwo("3"))
		_, _ = l.Take(ctx, headgate.Charge{})
		_, _ = l.Block(ctx, two, "b", time.Hour, "")
		_, _ = l.Check(ctx, headgate.Charge{Limit: two, Key: "b\n\"\u202e"})
		_, _ = l.Once("id", 0).Take(ctx, headgate.Charge{Limit: five, Key: "k"})
		_, _ = l.Once("id", 0).Take(ctx, headgate.Charge{Limit: five, Key: "k"})
		_, _ = l.Take(ctx, headgate.FirstOf([]headgate.Charge{{Limit: five, Key: "k", Cost: headgate.Units(5)}},
			[]headgate.Charge{{Limit: five, Key: "k", Cost: headgate.MustCost("0.5")}})...)
		_, _ = l.Take(ctx, headgate.Charge{Limit: five, Key: "k", Cost: headgate.Units(2)}, chargeTwo("1"))
	})
	want := []string{
		"refused fixed-window 2/30d a 1.5: a cost of 1.5 that leaves 1 can never pass, the capacity is 2",
		"admitted fixed-window 5/30d a 3: a cost of 3 fits, 2 of 5 remain",
		"refused fixed-window 5/30d a 1.5: a cost of 1.5 leaves less than 1, 2 of 5 remain",
		"admitted fixed-window 2/30d k 1.5: a cost of 1.5 fits, 0 of 2 remain",
		"refused fixed-window 2/30d k 1: a cost of 1 does not fit, 0 of 2 remain",
		"refused fixed-window 2/30d k 3: a cost of 3 can never pass, the capacity is 2",
		"failed   1: the request is wrong: limit: is missing",
		`admitted fixed-window 2/30d "b\n\"\u202e" 1: a cost of 1 fits, 2 of 2 remain`,
		"admitted fixed-window 5/30d k 1: a cost of 1 fits, 4 of 5 remain",
		"admitted fixed-window 5/30d k 1: the id was charged before, and the decision is the one of then",
		"admitted fixed-window 5/30d k 0.5: a cost of 0.5 fits, 3 of 5 remain",
		"refused fixed-window 2/30d k 1: a cost of 1 does not fit, 0 of 2 remain",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("logged\n%s\nwant\n%s", g, w)
	}
	if last["charges"] != 2.0 || last["protocol"] != "grpc" || last["way"] != "store" || last["verb"] != "take" ||
		last["capacity"] != 2.0 || last["retry_after"].(float64) < 1e9 || last["took"].(float64) <= 0 {
		t.Errorf("the last line has %v", last)
	}
}

// TestSharesOfRefusalsAndAdmissions counts the lines of 500 admissions and 500 refusals: 0.2 of 500 is 100.
func TestSharesOfRefusalsAndAdmissions(t *testing.T) {
	limit := headgate.MustParse("fixed-window 500/30d")
	for _, c := range []struct {
		refused, admitted  float64
		minLines, maxLines int
	}{{0, 1, 500, 500}, {1, 0, 500, 500}, {1, 1, 1000, 1000}, {0.2, 0, 40, 170}, {0, 0.2, 40, 170}} {
		now := time.Unix(0, 0)
		got, last := logLines(t, decisionlog.Config{
			Refused: c.refused, Admitted: c.admitted, Clock: func() time.Time { return now },
		}, func(l *headgate.Limiter) {
			for range 1000 {
				_, _ = l.Allow(t.Context(), limit, "k")
			}
		})
		if n := len(got); n < c.minLines || n > c.maxLines {
			t.Errorf("%+v: got %d lines", c, n)
		}
		if share, ok := last["share"]; ok != (c.refused+c.admitted == 0.2) || ok && share != 0.2 {
			t.Errorf("%+v: the last line has %v, want a share only if it is 0.2", c, last)
		}
	}
}

// TestACrossingIsLogged checks the line of a crossing, which is written without any share of decisions.
func TestACrossingIsLogged(t *testing.T) {
	limit := headgate.MustParseNamed("day", "fixed-window 4/30d notify 50%")
	lines, last := logLines(t, decisionlog.Config{}, func(l *headgate.Limiter) {
		for range 4 {
			_, _ = l.Allow(t.Context(), limit, "a\nb")
		}
	})
	delete(last, "time")
	if got := fmt.Sprint(last); len(lines) != 1 ||
		got != `map[capacity:4 key:"a\nb" level:INFO limit:day msg:crossed a threshold percent:50 used:2]` {
		t.Errorf("%d lines, the last is %s", len(lines), got)
	}
}

// TestLinesBeyondMaxLinesAreCounted checks that lines beyond MaxLines in a second are only counted.
func TestLinesBeyondMaxLinesAreCounted(t *testing.T) {
	now := time.Unix(0, 0)
	c := decisionlog.Config{Refused: 1, Clock: func() time.Time { return now }}
	got, last := logLines(t, c, func(l *headgate.Limiter) {
		for range decisionlog.MaxLines + 7 {
			_, _ = l.Take(context.Background(), headgate.Charge{})
		}
		now = now.Add(time.Second)
		_, _ = l.Take(context.Background(), headgate.Charge{})
	})
	if len(got) != decisionlog.MaxLines+1 || last["omitted"] != 7.0 {
		t.Errorf("got %d lines, %v, want %d, 7 omitted", len(got), last, decisionlog.MaxLines+1)
	}
}
