package law_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
)

// maxDuration is the longest duration that the laws accept, in microseconds: 142 years.
const maxDuration = int64(1) << 52

// TestValid changes one field of a valid op, and checks which field the error names. values has, for each value, the
// field in the error; "": there is no error.
func TestValid(t *testing.T) {
	t.Parallel()
	window := law.Params{Kind: law.Window, Unit: 1, Capacity: 10, Step: second}
	log := law.Params{Kind: law.Log, Unit: 1, Capacity: 10, Step: second}
	calendar := bucketOf5
	calendar.Anchor = law.Calendar
	returnOp := law.Op{Verb: law.Return, Params: bucketOf5, Cost: 1, Count: 1}
	settle := law.Op{Verb: law.Settle, Params: bucketOf5, Cost: 1, Count: 1, ID: "i"}
	extend := law.Op{Verb: law.Extend, Params: bucketOf5, Cost: 1, Count: 1, ID: "i", TTL: 1}
	renew := law.Op{Verb: law.Renew, Params: log, Cost: 1, Count: 1, EntryNumber: 1}
	block := law.Op{Verb: law.Block, Params: bucketOf5, Cost: 1, Count: 1}
	for _, tt := range []struct {
		name   string
		op     law.Op
		change func(op *law.Op, v int64)
		values map[int64]string
	}{
		{"verb", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Verb = law.Verb(v) }, map[int64]string{
			0: "verb", int64(law.Check): "", int64(law.Reset): "", int64(law.Extend) + 1: "verb",
		}},
		{"kind", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Params.Kind = law.Kind(v) }, map[int64]string{
			0: "limit", 1: "", 3: "", 4: "limit",
		}},
		{"anchor", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Params.Anchor = law.Anchor(v) }, map[int64]string{
			0: "", 1: "", 2: "", 3: "limit",
		}},
		{"policy", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Params.Away = law.Away(v) }, map[int64]string{
			0: "", 2: "", 3: "limit",
		}},
		{"unit", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Params.Unit = v }, map[int64]string{
			0: "limit", 1: "", law.Max: "", law.Max + 1: "limit",
		}},
		{"capacity", take(log, 1), func(op *law.Op, v int64) { op.Params.Capacity = v }, map[int64]string{
			0: "limit", 1: "", law.Max: "", law.Max + 1: "limit",
		}},
		{"capacity of a window", take(window, 1), func(op *law.Op, v int64) { op.Params.Capacity = v }, map[int64]string{
			0: "limit", 1: "", 1<<32 - 1: "", 1 << 32: "limit",
		}},
		{"drain", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Params.Drain = v }, map[int64]string{
			0: "limit", 1: "", law.Max: "", law.Max + 1: "limit",
		}},
		{"drain of a log", take(log, 1), func(op *law.Op, v int64) { op.Params.Drain = v }, map[int64]string{0: ""}},
		{"step", take(log, 1), func(op *law.Op, v int64) { op.Params.Step = v }, map[int64]string{
			0: "limit", 1: "", maxDuration: "", maxDuration + 1: "limit",
		}},
		{"step of a window", take(window, 1), func(op *law.Op, v int64) { op.Params.Step = v }, map[int64]string{
			maxDuration / 2: "", maxDuration/2 + 1: "limit",
		}},
		{"steps", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Params.Step = v }, map[int64]string{
			maxDuration / 5: "", maxDuration/5 + 1: "limit", law.Max: "limit",
		}},
		{"block", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Params.Block = v }, map[int64]string{
			-1: "limit", 0: "", maxDuration: "", maxDuration + 1: "limit",
		}},
		{"history", take(log, 1), func(op *law.Op, v int64) { op.Params.History = v }, map[int64]string{
			-1: "limit", 0: "", maxDuration: "", maxDuration + 1: "limit",
		}},
		{"deadline", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Params.Deadline = v }, map[int64]string{
			-1: "limit", 0: "", maxDuration: "", maxDuration + 1: "limit",
		}},
		{"time", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Now = v }, map[int64]string{
			-1: "time", 0: "", maxDuration: "", maxDuration + 1: "time",
		}},
		{"from", take(bucketOf5, 1), func(op *law.Op, v int64) { op.From = v }, map[int64]string{
			-1: "time", 0: "", law.Max: "", law.Max + 1: "time",
		}},
		{"until", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Until = v }, map[int64]string{
			-1: "time", 0: "", law.Max: "", law.Max + 1: "time",
		}},
		{"first boundary", take(calendar, 1), func(op *law.Op, v int64) { op.Window = [4]int64{v, 5, 6, 7} }, map[int64]string{
			-1: "bounds", 0: "", 5: "", 6: "bounds",
		}},
		{"second boundary", take(calendar, 1), func(op *law.Op, v int64) { op.Window = [4]int64{4, v, 6, 7} }, map[int64]string{
			3: "bounds", 4: "", 6: "", 7: "bounds",
		}},
		{"last boundary", take(calendar, 1), func(op *law.Op, v int64) { op.Window = [4]int64{4, 5, 6, v} }, map[int64]string{
			5: "bounds", 6: "", law.Max: "", law.Max + 1: "bounds",
		}},
		{"boundary of no calendar", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Window[0] = v }, map[int64]string{9: ""}},
		{"cost", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Cost = v }, map[int64]string{
			0: "cost", 1: "", law.Max: "", law.Max + 1: "cost",
		}},
		{"count", take(bucketOf5, 2), func(op *law.Op, v int64) { op.Count = v }, map[int64]string{
			0: "cost", 1: "", law.Max / 2: "", law.Max/2 + 1: "cost",
		}},
		{"ceiling", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Ceiling = v }, map[int64]string{
			-1: "ceiling", 0: "", law.Max: "", law.Max + 1: "ceiling",
		}},
		{"ceiling of a window", take(window, 1), func(op *law.Op, v int64) { op.Ceiling = v }, map[int64]string{
			1<<32 - 1: "", 1 << 32: "ceiling",
		}},
		{"life of an id", take(bucketOf5, 1), func(op *law.Op, v int64) { op.ID, op.TTL = "i", v }, map[int64]string{
			0: "id", 1: "", maxDuration: "", maxDuration + 1: "id",
		}},
		{"length of an id", extend, func(op *law.Op, v int64) { op.ID = strings.Repeat("i", int(v)) }, map[int64]string{
			0: "id", 1: "", 255: "", 256: "id",
		}},
		{"length of a key", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Cell.Key = strings.Repeat("k", int(v)) }, map[int64]string{
			0: "", 512: "", 513: "key",
		}},
		{"length of a limit", take(bucketOf5, 1), func(op *law.Op, v int64) { op.Cell.Limit = strings.Repeat("l", int(v)) }, map[int64]string{
			0: "limit", 1: "", 255: "", 256: "limit",
		}},
		{"count that is extended", extend, func(op *law.Op, v int64) { op.Count = v }, map[int64]string{1: "", 2: "charges"}},
		{"life of what is extended", extend, func(op *law.Op, v int64) { op.TTL = v }, map[int64]string{0: "id", 1: ""}},
		{"settled cost", settle, func(op *law.Op, v int64) { op.Cost = v }, map[int64]string{
			-3: "cost", law.Cancelled: "", -1: "cost", 0: "", law.Max: "", law.Max + 1: "cost",
		}},
		{"settled count", settle, func(op *law.Op, v int64) { op.Count = v }, map[int64]string{0: "cost", 1: "", 2: "cost"}},
		{"block of", block, func(op *law.Op, v int64) { op.TTL = v }, map[int64]string{
			-1: "block", 0: "", maxDuration: "", maxDuration + 1: "block",
		}},
		{"length of a reason", block, func(op *law.Op, v int64) { op.Reason = strings.Repeat("r", int(v)) }, map[int64]string{
			512: "", 513: "reason",
		}},
		{"renewed entry", renew, func(op *law.Op, v int64) { op.EntryNumber = v }, map[int64]string{0: "number", 1: ""}},
		{"renewed entry of a bucket", renew, func(op *law.Op, _ int64) { op.Params = bucketOf5 }, map[int64]string{1: "number"}},
		{"returned", returnOp, func(op *law.Op, v int64) { op.Cost = v }, map[int64]string{
			-law.Max - 1: "cost", -law.Max: "", -1: "", 0: "cost", 1: "", law.Max: "", law.Max + 1: "cost",
		}},
		{"returned count", returnOp, func(op *law.Op, v int64) { op.Cost, op.Count = 2, v }, map[int64]string{
			0: "cost", 1: "", law.Max / 2: "", law.Max/2 + 1: "cost",
		}},
		{"level", returnOp, func(op *law.Op, v int64) { op.Level = v }, map[int64]string{
			-1: "charges", 0: "", law.Max: "", law.Max + 1: "charges",
		}},
		{"time of a charge", returnOp, func(op *law.Op, v int64) { op.At = v }, map[int64]string{
			-1: "charges", 0: "", law.Max: "", law.Max + 1: "charges",
		}},
		{"sum returned", returnOp, func(op *law.Op, v int64) { op.Returned = v }, map[int64]string{
			-1: "charges", 0: "", law.Max: "", law.Max + 1: "charges",
		}},
		{"returned entry", returnOp, func(op *law.Op, v int64) { op.EntryNumber = v }, map[int64]string{-1: "charges", 0: "", 1: ""}},
	} {
		for v, wantField := range tt.values {
			op := tt.op
			op.Cell.Limit = "l"
			tt.change(&op, v)
			wantInvalid(t, tt.name, v, op.Valid(), wantField)
		}
	}
}

// wantInvalid fails the test unless err is an InvalidError about the field, or nil if field is "".
func wantInvalid(t *testing.T, name string, value any, err error, field string) {
	t.Helper()
	var invalid *law.InvalidError
	switch {
	case (err != nil) != (field != ""):
		t.Errorf("%s %v: %v, want an error of %q", name, value, err, field)
	case err != nil && (!errors.As(err, &invalid) || invalid.Field != field || !errors.Is(err, law.ErrInvalid)):
		t.Errorf("%s %v: %v, want an error of %q", name, value, err, field)
	}
}

// TestValidCombinations changes several fields of an op, and checks which field the error names; "": there is no error.
func TestValidCombinations(t *testing.T) {
	t.Parallel()
	window := law.Params{Kind: law.Window, Unit: 1, Capacity: 10, Step: second}
	for _, tt := range []struct {
		name   string
		change func(op *law.Op)
		field  string
	}{
		{"deferred", func(op *law.Op) { op.Deferred = true }, ""},
		{"deferred check", func(op *law.Op) { op.Deferred, op.Verb = true, law.Check }, "charges"},
		{"deferred, of a window", func(op *law.Op) { op.Deferred, op.Params = true, window }, "charges"},
		{"deferred, by the epoch", func(op *law.Op) { op.Deferred, op.Params.Anchor = true, law.Epoch }, "charges"},
		{"deferred and partial", func(op *law.Op) { op.Deferred, op.Partial = true, true }, "charges"},
		{"an id", func(op *law.Op) { op.ID, op.TTL = "i", 1 }, ""},
		{"check with an id", func(op *law.Op) { op.ID, op.TTL, op.Verb = "i", 1, law.Check }, "id"},
		{"partial with an id", func(op *law.Op) { op.ID, op.TTL, op.Partial = "i", 1, true }, "id"},
		{"extension", func(op *law.Op) { op.ID, op.TTL, op.Verb = "i", 1, law.Extend }, ""},
		{"partial extension", func(op *law.Op) { op.ID, op.TTL, op.Verb, op.Partial = "i", 1, law.Extend, true }, "charges"},
		{"deferred extension", func(op *law.Op) { op.ID, op.TTL, op.Verb, op.Deferred = "i", 1, law.Extend, true }, "charges"},
		{"partial", func(op *law.Op) { op.Partial = true }, ""},
	} {
		op := take(bucketOf5, 1)
		op.Cell.Limit = "l"
		tt.change(&op)
		wantInvalid(t, tt.name, "", op.Valid(), tt.field)
	}
}

// TestValidGroup changes the second of two ops of one request, or both, and checks which field the error names.
func TestValidGroup(t *testing.T) {
	t.Parallel()
	other := bucketOf5
	other.Capacity++
	for _, tt := range []struct {
		name         string
		changeBoth   func(op *law.Op) // may be nil
		changeSecond func(op *law.Op)
		field        string
	}{
		{"alike", nil, func(*law.Op) {}, ""},
		{"another verb", nil, func(op *law.Op) { op.Verb = law.Check }, "charges"},
		{"a part", nil, func(op *law.Op) { op.Partial = true }, "charges"},
		{"one that starts later", nil, func(op *law.Op) { op.Deferred = true }, "charges"},
		{"an id of one", nil, func(op *law.Op) { op.ID, op.TTL = "i", 1 }, "id"},
		{"a bad op", nil, func(op *law.Op) { op.Cost = 0 }, "cost"},
		{"another limit of the same name and key", nil, func(op *law.Op) { op.Params = other }, "limit"},
		{"another limit of the same name, for another key", nil, func(op *law.Op) {
			op.Params, op.Cell.Key = other, "other"
		}, ""},
		{"another limit of another name", nil, func(op *law.Op) { op.Params, op.Cell.Limit = other, "other" }, ""},
		{"one id, and one cell", func(op *law.Op) { op.ID, op.TTL = "i", 1 }, func(*law.Op) {}, "id"},
		{"one id, and two cells", func(op *law.Op) { op.ID, op.TTL = "i", 1 }, func(op *law.Op) { op.Cell.Key = "other" }, ""},
		{
			"two ids of settlements",
			func(op *law.Op) { op.ID, op.Verb = "i", law.Settle },
			func(op *law.Op) { op.ID, op.Cell.Key = "other", "other" }, "",
		},
		{
			"two ids of extensions",
			func(op *law.Op) { op.ID, op.TTL, op.Verb = "i", 1, law.Extend },
			func(op *law.Op) { op.ID, op.Cell.Key = "other", "other" }, "id",
		},
	} {
		ops := []law.Op{take(bucketOf5, 1), take(bucketOf5, 1)}
		for i := range ops {
			if ops[i].Cell.Limit = "l"; tt.changeBoth != nil {
				tt.changeBoth(&ops[i])
			}
		}
		tt.changeSecond(&ops[1])
		wantInvalid(t, tt.name, "", law.ValidGroup(ops), tt.field)
	}
}
