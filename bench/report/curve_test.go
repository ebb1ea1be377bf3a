package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestCurvesHaveAPointForEachNumberOfCallers(t *testing.T) {
	t.Parallel()
	var results []compare.Result
	for i, callers := range []int{1, 8, 512} {
		results = append(results, compare.Result{
			Comparison: compare.Comparison{Curve: &compare.Point{
				Picture: "curve-x", Title: "X & Y", Panel: "one key", Callers: callers,
			}},
			Figures: []compare.Figure{
				{Side: compare.Ours, Label: "Headgate", Median: float64(1000 * (i + 1))},
				{Side: compare.Rival, Label: "another, 8 clients", Median: 700},
			},
		})
	}
	picture := string(Curves(results)["curve-x"])
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
