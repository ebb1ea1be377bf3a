package api_test

import (
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/internal/server/api"
)

// TestAmounts checks that costs are parsed exactly and written as before, and that other texts are errors.
func TestAmounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[json.Number]struct {
		units int64
		nanos int32
	}{
		"0": {}, "5": {5, 0}, "0.05": {0, 50_000_000}, "49.999938": {49, 999_938_000},
		"9007199.254740991": {9007199, 254_740_991}, "0.000000001": {0, 1}, "9223372036854775807": {1<<63 - 1, 0},
	} {
		units, nanos, err := api.Amount(text)
		if err != nil || units != want.units || nanos != want.nanos || api.Number(units, nanos) != text {
			t.Errorf("%s: got %d, %d, %v (%s), want %+v", text, units, nanos, err, api.Number(units, nanos), want)
		}
	}
	if units, nanos, err := api.Amount(""); units != 0 || nanos != 0 || err != nil {
		t.Errorf("no amount: got %d, %d, %v, want 0, 0", units, nanos, err)
	}
	for _, text := range []json.Number{
		"-1", "1e3", "0.5e3", "1.0000000001", "true", "x", "+5", "0x5", ".5", "5.-1", "9223372036854775808",
	} {
		if units, nanos, err := api.Amount(text); err == nil {
			t.Errorf("%s: got %d, %d, want an error", text, units, nanos)
		}
	}
}
