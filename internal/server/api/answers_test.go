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

// readLeniently reads JSON like clients, which accept more than Read does.
func readLeniently(data []byte, v any) error {
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

// answerTexts are batches of answers, and whether Read accepts them.
var answerTexts = []struct {
	text  string
	valid bool
}{
	{`{"answers":[` + decision + `]}`, true},
	{`{"answers":[{"allowed":false,"limit":"ключ","remaining":0,"retry_after_ms":0,"reset_after_ms":0,"at":0}, {"at":1}]}` + "\n", true},
	{`{"answers":[` + strings.Repeat(decision+",", 50) + decision + `]}`, true},
	{`{"answers":[]}`, true},
	{`{"answers":[{"problem":{"title":"t","status":400}}]}`, true},
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
	{`{"answers":[{"limit":"a","each":[]}]}`, true},
	{`{"answers":[{"allowed":true,"limit":"usd","capacity":0.05,"remaining":0.0312,"reset_after_ms":1,"at":2}]}`, true},
	{`{"answers":[{"limit":"a","each":[{"charge":0,"charge":1}]}]}`, false},
}

// compareRead returns whether Read accepts data. It fails the test if encoding/json does not, or reads another value.
func compareRead(t *testing.T, data []byte) (valid bool) {
	t.Helper()
	var got, want api.Answers
	if api.Read(data, &got) != nil {
		return false
	}
	if err := readLeniently(data, &want); err != nil {
		t.Errorf("%q was read, but encoding/json says %v", data, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%q: read %+v, want %+v", data, got, want)
	}
	return true
}

// TestReadAnswers compares the answers that Read and encoding/json read.
func TestReadAnswers(t *testing.T) {
	t.Parallel()
	for _, a := range answerTexts {
		if got := compareRead(t, []byte(a.text)); got != a.valid {
			t.Errorf("%q: got valid %v, want %v", a.text, got, a.valid)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	for _, a := range answerTexts {
		f.Add([]byte(a.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { compareRead(t, data) })
}

func BenchmarkBatch(b *testing.B) {
	bench[api.Batch](b, "requests", `{"limit":"login","key":"user/12345678"}`)
}

func BenchmarkAnswers(b *testing.B) {
	bench[api.Answers](b, "answers", `{"allowed":true,"limit":"login","remaining":50,"retry_after_ms":0,`+
		`"reset_after_ms":123,"at":1763712000123456}`)
}

// bench measures reading 200 elements, by package api and by encoding/json, and writing them.
func bench[T any](b *testing.B, name, element string) {
	var v T
	text := []byte(`{"` + name + `":[` + strings.TrimSuffix(strings.Repeat(element+",", 200), ",") + `]}`)
	if err := readLeniently(text, &v); err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		do   func() error
	}{
		{"read", func() error { return api.Read(text, new(T)) }},
		{"read/encoding-json", func() error { return readLeniently(text, new(T)) }},
		{"write", func() error { _, err := json.Marshal(&v); return err }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bb.do(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200, "ns/element")
		})
	}
}
