package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestAnAuditCountsWhatSingleKeysGotAboveTheirBound asks a limiter that lets one key pass always,
// and another never: together they stay below the bound, and the first key is over it all the same.
func TestAnAuditCountsWhatSingleKeysGotAboveTheirBound(t *testing.T) {
	t.Parallel()
	asked := 0
	count := audit(1, 2, 0, 100, func(context.Context, *rand.Rand) (int, error) {
		if asked++; asked <= 150 {
			return 0, nil
		}
		time.Sleep(time.Millisecond)
		return -1, nil
	})
	e, err := count(t.Context(), time.Millisecond)
	if err != nil || e.admitted != 150 || e.allowed != 200 || e.over != 50 {
		t.Errorf("got %+v, %v; want 150 of 200 admitted, 50 over", e, err)
	}
}

func TestCurvesHaveAPointForEachNumberOfCallers(t *testing.T) {
	t.Parallel()
	var results []result
	for i, callers := range []int{1, 8, 512} {
		results = append(results, result{
			comparison: comparison{
				curve: &point{picture: "curve-x", title: "X & Y", panel: "one key", callers: callers},
			},
			figures: []figure{
				{side: ours, label: "Headgate", median: float64(1000 * (i + 1))},
				{side: rival, label: "another, 8 clients", median: 700},
			},
		})
	}
	picture := string(curves(results)["curve-x"])
	if n := strings.Count(picture, "<circle"); n != 6 {
		t.Errorf("%d points, want 3 for each of 2 sides", n)
	}
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
	}
}
