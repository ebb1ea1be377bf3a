package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/api"
)

// lenient reads as clients do where ScanJSON does not.
func lenient(data []byte, v any) error {
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

const decision = `{"allowed":true,"limit":"l","key":"k","remaining":5,"retry_after_ms":null,"reset_after_ms":12,"at":1763712000123456,"entry":3,"via":"lease","replayed":true}`

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
	{`{"answers":[{"allowed":false,"limit":"a","key":"k","capacity":5,"remaining":1,"retry_after_ms":3,"each":[` +
		`{"charge":0,"allowed":true,"limit":"a","key":"k","capacity":5,"remaining":1,"retry_after_ms":0,"reset_after_ms":2},` +
		`{"charge":2,"allowed":false,"limit":"b","key":"","capacity":5,"remaining":0,"retry_after_ms":null,"applied":"plan p"}]}]}`, true},
	{`{"answers":[{"limit":"a","each":[]}]}`, false},
	{`{"answers":[{"limit":"a","each":[{"charge":0,"charge":1}]}]}`, false},
}

// scans fails if ScanJSON reads what encoding/json does not, or reads it
// otherwise.
func scans(t *testing.T, data []byte) (scanned bool) {
	t.Helper()
	var got, want api.Answers
	if !got.ScanJSON(data) {
		return false
	}
	if err := lenient(data, &want); err != nil {
		t.Errorf("%q was read, but encoding/json says %v", data, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%q: read %+v, want %+v", data, got, want)
	}
	return true
}

func TestAnswersAreReadAsEncodingJSONReadsThem(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		if got := scans(t, []byte(a.text)); got != a.scanned {
			t.Errorf("%q: read %v, want %v", a.text, got, a.scanned)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	for _, a := range answers {
		f.Add([]byte(a.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		scans(t, data)
		var a, again api.Answers
		if lenient(data, &a) != nil {
			return
		}
		want, err := json.Marshal(&a)
		if err != nil {
			t.Fatal(err)
		}
		if err := lenient(a.AppendJSON(nil), &again); err != nil {
			t.Fatalf("%s was written %s: %v", want, a.AppendJSON(nil), err)
		}
		if got, err := json.Marshal(&again); err != nil || len(a.Answers) > 0 && !bytes.Equal(got, want) {
			t.Errorf("%s was written %s", want, a.AppendJSON(nil))
		}
	})
}

func BenchmarkBatch(b *testing.B) {
	text := `{"requests":[` + strings.TrimSuffix(strings.Repeat(`{"limit":"login","key":"user/12345678"},`, 200), ",") +
		`]}`
	bench(b, []byte(text), func(v *api.Batch, text []byte) bool { return v.ReadJSON(text) == nil },
		func(v *api.Batch, b []byte) []byte {
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
	if err := lenient(text, &v); err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		do   func() bool
	}{
		{"read", func() bool { return scan(new(T), text) }},
		{"read/encoding-json", func() bool { return lenient(text, new(T)) == nil }},
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
