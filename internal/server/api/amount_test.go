package api_test

import (
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/internal/server/api"
)

func TestAmounts(t *testing.T) {
	for text, want := range map[string]api.Amount{
		"0": {}, "5": {Units: 5}, "0.05": {Nanos: 50_000_000}, "49.999938": {Units: 49, Nanos: 999_938_000},
		"9007199.254740991": {Units: 9007199, Nanos: 254_740_991}, "0.000000001": {Nanos: 1},
	} {
		var got api.Amount
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v, written as %s; want %+v", text, got, err, got, want)
		}
		if again, err := json.Marshal(got); err != nil || string(again) != text {
			t.Errorf("%s is written as %s, %v", text, again, err)
		}
	}
	for _, text := range []string{`"5"`, "-1", "1e3", "0.5e3", "1.0000000001", "05", "true", "[]"} {
		var got api.Amount
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %s; want an error", text, got)
		}
	}
}

// TestDecisionsWithDigits reads by hand what encoding/json reads.
func TestDecisionsWithDigits(t *testing.T) {
	const text = `{"answers":[{"allowed":true,"limit":"usd","capacity":0.05,"remaining":0.0312,"retry_after_ms":0,` +
		`"reset_after_ms":1,"at":2}]}`
	var read, scanned api.Answers
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	if !scanned.ScanJSON([]byte(text)) || scanned.Answers[0].Remaining != read.Answers[0].Remaining ||
		read.Answers[0].Remaining != (api.Amount{Nanos: 31_200_000}) || scanned.Answers[0].Capacity.String() != "0.05" {
		t.Errorf("read %+v, scanned %+v", read.Answers[0].Decision, scanned.Answers[0].Decision)
	}
}
