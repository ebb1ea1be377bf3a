package api_test

import (
	"bytes"
	"encoding/json"
	"math/rand" // of which testing/quick takes a source
	"reflect"
	"testing"
	"testing/quick"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// writes fails unless AppendDecision appends what encoding/json writes.
func writes(t *testing.T, d *api.Decision) {
	t.Helper()
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		t.Fatal(err)
	}
	const before = "before"
	if got := append(api.AppendDecision([]byte(before), d), '\n'); string(got) != before+want.String() {
		t.Errorf("%+v: got %s, want %s", d, got[len(before):], want.Bytes())
	}
}

// TestDecisionsAreWrittenAsEncodingJSONWritesThem fills all fields there are, and leaves
// some of them out.
func TestDecisionsAreWrittenAsEncodingJSONWritesThem(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewSource(1))
	for range tier.Pick(1000, 20_000, 200_000) {
		v, ok := quick.Value(reflect.TypeFor[api.Decision](), rng)
		if !ok {
			t.Fatal("no value")
		}
		d := v.Interface().(api.Decision)
		legal(&d.Capacity, &d.Remaining)
		for i := range d.Each {
			legal(&d.Each[i].Capacity, &d.Each[i].Remaining)
		}
		fields := reflect.ValueOf(&d).Elem()
		for i := range fields.NumField() {
			if rng.Intn(3) == 0 {
				fields.Field(i).SetZero()
			}
		}
		writes(t, &d)
	}
}

// legal makes amounts of random bits ones that there are.
func legal(list ...*api.Amount) {
	for _, a := range list {
		a.Units, a.Nanos = a.Units&(1<<53-1), int32(uint32(a.Nanos)%1_000_000_000)
	}
}

func FuzzDecision(f *testing.F) {
	f.Add(true, "login", "", int64(5), int64(0), false, int64(12), int64(1763712000123456), int64(0), "", false)
	f.Add(false, "<&>\u2028\x7f\"\\\n", "ключ\xff", int64(-1), int64(1<<62), true, int64(0), int64(-1), int64(3),
		"prefetch", true)
	f.Fuzz(func(t *testing.T, allowed bool, limit, key string, remaining, retry int64, never bool, reset, at,
		entry int64, via string, replayed bool,
	) {
		d := api.Decision{
			Allowed: allowed, Limit: limit, Key: key,
			Remaining:    api.Amount{Units: remaining & (1<<53 - 1), Nanos: int32(uint64(at) % 1_000_000_000)},
			ResetAfterMS: reset, At: at, Entry: entry,
			Via: via, Replayed: replayed,
		}
		if !never {
			d.RetryAfterMS = &retry
		}
		writes(t, &d)
	})
}
