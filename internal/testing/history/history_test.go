package history_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/leaktest"
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

// decode reads one line, and returns an error for an unknown field, a second object or an invalid event.
func decode(line string) (e history.Event, err error) {
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err = d.Decode(&e); err == nil && d.More() {
		err = errors.New("more than one object")
	}
	return e, cmp.Or(err, e.Valid())
}

func TestHistoriesAreWrittenAsTheyWereRead(t *testing.T) {
	h := &history.History{}
	for line := range strings.Lines(sample) {
		e, err := decode(line)
		if err != nil {
			t.Fatal(err)
		}
		h.Events = append(h.Events, e)
	}
	var out bytes.Buffer
	if err := h.Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.String() != sample {
		t.Errorf("wrote\n%s\nwant\n%s", out.String(), sample)
	}
	if len(h.Events) != 7 || h.Events[2].Fault.By != -5 || h.Events[1].Call.Charges[0].Cost != "2.5" {
		t.Errorf("got %+v, want the 7 events of the sample", h.Events)
	}
}

func TestValidRefusesImpossibleNumbers(t *testing.T) {
	for _, line := range []string{
		`{"t":1,"return":{"id":1,"outcome":"done","at":-1}}`,
		`{"t":1,"return":{"id":1,"outcome":"done","startat":9007199254740993}}`,
		`{"t":1,"return":{"id":1,"outcome":"refused","each":[{"remaining":-2}]}}`,
		`{"t":1,"return":{"id":1,"outcome":"refused","each":[{"remaining":0,"retryafter":-2}]}}`,
		`{"t":1,"return":{"id":1,"outcome":"done","corrected":["-1"]}}`,
		`{"t":1,"return":{"id":1,"outcome":"done","charged":["1","-1/3"]}}`,
		`{"t":1,"state":{"limit":"l","key":"k","used":"-1"}}`,
		`{"t":1,"state":{"limit":"l","key":"k","used":"1","at":-1}}`,
	} {
		if e, err := decode(line); err == nil {
			t.Errorf("%s: got %+v, want an error", line, e)
		}
	}
}
