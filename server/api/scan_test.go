package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/server/api"
)

// strict reads as the server does where ScanJSON does not.
func strict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows")
	}
	return nil
}

// agrees fails if ScanJSON reads what encoding/json does not, or reads it
// otherwise.
func agrees[T any](t *testing.T, data []byte, scan func(*T, []byte) bool) (scanned bool) {
	t.Helper()
	var got, want T
	if !scan(&got, data) {
		return false
	}
	if err := strict(data, &want); err != nil {
		t.Errorf("%q was read, but encoding/json says %v", data, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%q: read %+v, want %+v", data, got, want)
	}
	return true
}

var batches = []struct {
	text    string
	scanned bool
}{
	{`{"requests":[{"limit":"login","key":"alice"}]}`, true},
	{" {\t\"requests\" :\r\n[ { \"key\" : \"\" , \"limit\" : \"l\" } , {\"limit\":\"l\"} ] } \n", true},
	{`{"requests":[{"limit":"l","key":"ключ","cost":2.50,"check":true},{"limit":"l","check":false}]}`, true},
	{`{"requests":[{"charges":[{"limit":"a","key":"k","cost":0},{"limit":"b","cost":-0.1}],"check":true}]}`, true},
	{`{"requests":[{"limit":"a","charges":[{"key":"k"}]}]}`, true},
	// These are left to encoding/json.
	{`{"requests":[]}`, false},
	{`{"requests":[{}]}`, false},
	{`{"requests":null}`, false},
	{`{"requests":[{"limit":"a"}],"requests":[{"key":"b"}]}`, false},
	{`{"requests":[{"limit":"a","limit":"b"}]}`, false},
	{`{"requests":[{"Limit":"a"}]}`, false},
	{`{"requests":[{"limit":"a\u0062"}]}`, false},
	{`{"requests":[{"limit":null}]}`, false},
	{`{"requests":[{"limit":"a","cost":"1"}]}`, false},
	{`{"requests":[{"limit":"a","cost":1e3}]}`, false},
	{"{\"requests\":[{\"limit\":\"a\xff\"}]}", false},
	// These are wrong.
	{``, false},
	{`{`, false},
	{`[]`, false},
	{`{"requests":[{"limit":"a"}]} {}`, false},
	{"{\"requests\":[{\"limit\":\"a\"}]}\x00", false},
	{`{"requests":[{"limit":"a"},]}`, false},
	{`{"requests":[{"limit":"a",}]}`, false},
	{`{"requests":[{"limit":"a"}]`, false},
	{`{"requests":[{"limit":"a","kye":"k"}]}`, false},
	{`{"requests":[{"limit":"a","cost":01}]}`, false},
	{`{"requests":[{"limit":"a","cost":1.}]}`, false},
	{`{"requests":[{"limit":"a","cost":-}]}`, false},
	{`{"requests":[{"limit":"a","cost":.5}]}`, false},
	{`{"requests":[{"limit":"a","check":trues}]}`, false},
	{"{\"requests\":[{\"limit\":\"a\nb\"}]}", false},
}

func TestBatchesAreReadAsEncodingJSONReadsThem(t *testing.T) {
	t.Parallel()
	for _, b := range batches {
		if got := agrees(t, []byte(b.text), (*api.Batch).ScanJSON); got != b.scanned {
			t.Errorf("%q: read %v, want %v", b.text, got, b.scanned)
		}
	}
}

func FuzzBatch(f *testing.F) {
	for _, b := range batches {
		f.Add([]byte(b.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !agrees(t, data, (*api.Batch).ScanJSON) {
			return
		}
		// And what is written is read again.
		var b, again api.Batch
		b.ScanJSON(data)
		text := []byte(`{"requests":[`)
		for i := range b.Requests {
			r := &b.Requests[i]
			if r.Charge != (api.Charge{}) {
				r.Charges = nil // one or the other is written
			}
			text = append(r.AppendJSON(text), ',')
		}
		text = append(text[:len(text)-1], `]}`...)
		if err := strict(text, &again); err != nil || !reflect.DeepEqual(again, b) {
			t.Errorf("%+v was written %s and read %+v, %v", b, text, again, err)
		}
	})
}

const decision = `{"allowed":true,"limit":"l","key":"k","remaining":5,"retry_after_ms":null,"reset_after_ms":12,"at":1763712000123456,"entry":3,"via":"lease"}`

var answers = []struct {
	text    string
	scanned bool
}{
	{`{"answers":[` + decision + `]}`, true},
	{`{"answers":[{"allowed":false,"limit":"ключ","remaining":0,"retry_after_ms":0,"reset_after_ms":0,"at":0}, {"at":1}]}` + "\n", true},
	{`{"answers":[` + strings.Repeat(decision+",", 50) + decision + `]}`, true},
	{`{"answers":[]}`, false},
	{`{"answers":[{"problem":{"title":"t","status":400}}]}`, false},
	{`{"answers":[{"allowed":true,"more":1}]}`, false},
	{`{"answers":[{"at":1.5}]}`, false},
	{`{"answers":[{"at":-1}]}`, false},
	{`{"answers":[{"at":9223372036854775807}]}`, false},
	{`{"answers":[{"at":"1"}]}`, false},
	{`{"answers":[{"at":01}]}`, false},
	{`{"answers":[null]}`, false},
}

func TestAnswersAreReadAsEncodingJSONReadsThem(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		if got := agrees(t, []byte(a.text), (*api.Answers).ScanJSON); got != a.scanned {
			t.Errorf("%q: read %v, want %v", a.text, got, a.scanned)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	for _, a := range answers {
		f.Add([]byte(a.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		agrees(t, data, (*api.Answers).ScanJSON)
		var a, again api.Answers
		if strict(data, &a) != nil {
			return
		}
		want, err := json.Marshal(&a)
		if err != nil {
			t.Fatal(err)
		}
		if err := strict(a.AppendJSON(nil), &again); err != nil {
			t.Fatalf("%s was written %s: %v", want, a.AppendJSON(nil), err)
		}
		if got, err := json.Marshal(&again); err != nil || len(a.Answers) > 0 && !bytes.Equal(got, want) {
			t.Errorf("%s was written %s", want, a.AppendJSON(nil))
		}
	})
}

func BenchmarkBatch(b *testing.B) {
	text := `{"requests":[` + strings.TrimSuffix(strings.Repeat(`{"limit":"login","key":"user/12345678"},`, 200), ",") + `]}`
	bench(b, []byte(text), (*api.Batch).ScanJSON, func(v *api.Batch, b []byte) []byte {
		for i := range v.Requests {
			b = v.Requests[i].AppendJSON(b)
		}
		return b
	})
}

func BenchmarkAnswers(b *testing.B) {
	one := `{"allowed":true,"limit":"login","remaining":50,"retry_after_ms":0,"reset_after_ms":123,"at":1763712000123456},`
	text := `{"answers":[` + strings.TrimSuffix(strings.Repeat(one, 200), ",") + `]}`
	bench(b, []byte(text), (*api.Answers).ScanJSON, (*api.Answers).AppendJSON)
}

// bench reads and writes 200 elements, and compares with encoding/json.
func bench[T any](b *testing.B, text []byte, scan func(*T, []byte) bool, write func(*T, []byte) []byte) {
	var v T
	var buf []byte // used again, as client and server do
	if err := strict(text, &v); err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		do   func() bool
	}{
		{"read", func() bool { return scan(new(T), text) }},
		{"read/encoding-json", func() bool { return strict(text, new(T)) == nil }},
		{"write", func() bool { buf = write(&v, buf[:0]); return len(buf) > 0 }},
		{"write/encoding-json", func() bool { _, err := json.Marshal(&v); return err == nil }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !bb.do() {
					b.Fatal("failed")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200, "ns/element")
		})
	}
}
