package main

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestExactnessCountsEachKey checks that computeExactness counts the excess of one key over its bound: two workers
// admit 150 for the first key, whose bound is 100, and nothing for the second.
func TestExactnessCountsEachKey(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	reports := []report{
		{Admitted: [auditKeys]int64{100, 0}, Begin: begin.Add(time.Second), End: begin.Add(2 * time.Second)},
		{Admitted: [auditKeys]int64{50, 0}, Begin: begin, End: begin.Add(time.Second)},
	}
	e := computeExactness(reports, headgate.MustParse("token-bucket 10/s burst 80").Bound())
	if e.admitted != 150 || e.allowed != 200 || e.over != 50 {
		t.Errorf("got %+v; want 150 of 200 admitted, 50 over", e)
	}
}

// TestThePictureHasABarForEachFigure checks the bars of a row that is ahead and of a row that is behind. The third row,
// of a sliding log, is not in the picture.
func TestThePictureHasABarForEachFigure(t *testing.T) {
	t.Parallel()
	row := func(name string, value float64) result {
		return result{comparison: comparison{name: name}, figures: []figure{
			{sample: sample{value: value}}, {side: rivalSide, sample: sample{value: 100}},
		}}
	}
	rows := []result{row("postgres-plain-8x4", 250), row("sqlite-plain-1", 80), row("sqlite-log-1", 80)}
	svg := string(drawPicture(rows))
	for text, want := range map[string]int{`class="ahead"`: 1, ">2.50<": 1, `class="behind"`: 1, ">0.80<": 1} {
		if got := strings.Count(svg, text); got != want {
			t.Errorf("%s stands %d times in the picture, want %d", text, got, want)
		}
	}
	if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
		t.Error(err)
	}
}
