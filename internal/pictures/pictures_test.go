package pictures

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var update = flag.Bool("update", false, "write the pictures of docs/pictures again")

// folder has the pictures of the documentation.
const folder = "../../docs/pictures"

// TestThePicturesAreWhatTheCodeDoes draws all pictures again and compares them with the files.
func TestThePicturesAreWhatTheCodeDoes(t *testing.T) {
	t.Parallel()
	drawn := map[string]bool{}
	compare := func(name string, draw func() ([]byte, error)) {
		got, err := draw()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := wellFormed(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		path := filepath.Join(folder, name)
		drawn[name] = true
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s shows what the code does not do any more: go test ./internal/pictures -update", path)
		}
	}
	for _, c := range Charts {
		compare(c.Name+".svg", c.Draw)
	}
	compare("overview.svg", DrawOverview)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !drawn[e.Name()] {
			t.Errorf("nothing draws %s", filepath.Join(folder, e.Name()))
		}
	}
}

func wellFormed(svg []byte) error {
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// TestEveryAlgorithmIsDrawn: one chart for each, of one capacity, and nothing passes that the limit's bound forbids.
func TestEveryAlgorithmIsDrawn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range Charts {
		r, err := play(c.Notation, stream(), length, c.hold)
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(c.Notation, " ")
		seen[name] = true
		highest := 0.0
		for _, p := range r.way {
			highest = max(highest, p.level)
		}
		if highest > capacity || highest <= capacity-1 {
			t.Errorf("%s: %g of %d were in use at most", c.Notation, highest, capacity)
		}
		if _, most := r.busiest(period); c.hold == 0 && float64(most) > r.limit.Bound().In(period).Float64() {
			t.Errorf("%s: %d passed within %s", c.Notation, most, period)
		}
	}
	for _, h := range headgate.Algorithms() {
		name, _, _ := strings.Cut(h.Notation, " ")
		if other := strings.HasPrefix(name, "AMOUNT") || name == "0" || name == "unlimited"; !other && !seen[name] {
			t.Errorf("%s has no chart", name)
		}
	}
}

// TestTheColoursAreWrittenOut: some programs know no custom properties.
func TestTheColoursAreWrittenOut(t *testing.T) {
	t.Parallel()
	if strings.Contains(style, "var(") || !strings.Contains(style, "prefers-color-scheme: dark") {
		t.Errorf("the style is %s", style)
	}
}

// TestBusiest: an interval begins with a request that is admitted, and its end does not belong to it.
func TestBusiest(t *testing.T) {
	t.Parallel()
	r := run{requests: []request{{1, true}, {2, false}, {3, true}, {13, true}, {14, true}}}
	if from, most := r.busiest(10); from != 1 || most != 2 {
		t.Errorf("got %d from %d on", most, from)
	}
	if from, most := r.busiest(time.Second); from != 1 || most != 4 {
		t.Errorf("got %d from %d on", most, from)
	}
}
