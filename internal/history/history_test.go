package history_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const sample = `{"t":0,"limit":{"name":"api","algorithm":"token-bucket","version":1,"amount":"10","period":1000000,"burst":"1/3"}}
{"t":1000,"node":"a","call":{"id":1,"verb":"take","charges":[{"limit":"api","version":1,"key":"k","cost":"2.5"}],"idem":"x"}}
{"t":1000,"node":"store","fault":{"kind":"clock","by":-5}}
{"t":1500,"limit":{"name":"api","algorithm":"gcra","version":2,"amount":"1","period":1000000,"key":"k","until":99,"felt":2000000}}
{"t":2000,"removal":{"limit":"api","version":2}}
{"t":9000,"node":"a","return":{"id":1,"outcome":"admitted","at":17,"via":"store","each":[{"remaining":4,"capacity":5}]}}
{"t":20000,"state":{"limit":"api","version":1,"key":"k","used":"0.9999","at":18}}
`

func TestRoundTrip(t *testing.T) {
	h, err := history.Read(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := h.Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.String() != sample {
		t.Errorf("written again:\n%s", out.String())
	}
	if len(h.Events) != 7 || h.Events[2].Fault.By != -5 || h.Events[1].Call.Charges[0].Cost != "2.5" {
		t.Errorf("read: %+v", h.Events)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, line := range []string{
		``, `{}`, `[]`, `null`, `{"t":1}`,
		`{"t":1,"fault":{"kind":"kill"},"more":1}`,
		`{"t":1,"fault":{"kind":"kill","more":1}}`,
		`{"t":1,"fault":{"kind":"kill"}} {}`,
		`{"t":-1,"fault":{"kind":"kill"}}`,
		`{"t":1.5,"fault":{"kind":"kill"}}`,
		`{"t":1,"fault":{"kind":"kill"},"state":{"limit":"l","key":"k"}}`,
		`{"t":1,"guess":{"kind":"kill"}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"bucket","amount":"1","period":1}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"gcra","amount":"1"}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"gcra","amount":"0","period":1}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"gcra","amount":"1e3","period":1}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"gcra","period":1}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"fixed-window","amount":"1"}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"fixed-window","amount":"1","calendar":"year"}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"concurrency","amount":"1"}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"gcra","amount":"1","period":1,"until":5}}`,
		`{"t":1,"limit":{"name":"l","algorithm":"gcra","amount":"1","period":1,"key":"k","until":-5}}`,
		`{"t":1,"call":{"id":0,"verb":"take","charges":[{"limit":"l","key":"k","cost":"1"}]}}`,
		`{"t":1,"call":{"id":1,"verb":"grab","charges":[{"limit":"l","key":"k","cost":"1"}]}}`,
		`{"t":1,"call":{"id":1,"verb":"take"}}`,
		`{"t":1,"call":{"id":1,"verb":"take","charges":[{"limit":"l","key":"k"}]}}`,
		`{"t":1,"call":{"id":1,"verb":"take","charges":[{"limit":"l","key":"k","cost":"-1"}]}}`,
		`{"t":1,"call":{"id":1,"verb":"settle","of":1,"actual":["x"]}}`,
		`{"t":1,"return":{"id":1,"outcome":"perhaps"}}`,
		`{"t":1,"return":{"id":1,"outcome":"done","via":"luck"}}`,
		`{"t":1,"return":{"id":1,"outcome":"done","corrected":["1/0"]}}`,
		`{"t":1,"state":{"limit":"l","key":"k","used":"-1"}}`,
	} {
		if h, err := history.Read(strings.NewReader(line + "\n")); err == nil {
			t.Errorf("%s: read as %+v", line, h.Events)
		}
	}
	back := `{"t":2,"fault":{"kind":"kill"}}` + "\n" + `{"t":1,"fault":{"kind":"kill"}}`
	if _, err := history.Read(strings.NewReader(back)); err == nil || !strings.HasPrefix(err.Error(), "line 2:") {
		t.Errorf("time that goes back: %v", err)
	}
	empty := history.History{Events: make([]history.Event, 1)}
	if err := empty.Write(&bytes.Buffer{}); err == nil {
		t.Error("an event without its object was written")
	}
}

// FuzzRead checks that what is read is read the same when it is written again.
func FuzzRead(f *testing.F) {
	f.Add(sample)
	for line := range strings.Lines(sample) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := history.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := h.Write(&out); err != nil {
			t.Fatalf("cannot be written: %v", err)
		}
		again, err := history.Read(&out)
		if err != nil {
			t.Fatalf("cannot be read again: %v", err)
		}
		if !same(h, again) {
			t.Fatalf("read again: %+v", again.Events)
		}
	})
}

// same compares two histories; what is empty may be absent.
func same(a, b *history.History) bool {
	var x, y bytes.Buffer
	_, _ = a.Write(&x), b.Write(&y)
	return len(a.Events) == len(b.Events) && reflect.DeepEqual(x.Bytes(), y.Bytes())
}
