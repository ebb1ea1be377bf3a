package wire_test

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestAppendOrdersTheNumbersOfAnOp(t *testing.T) {
	op := law.Op{
		Verb: law.Take, Cost: 7, Count: 3, Deferred: true, Ceiling: 9, Window: [4]int64{10, 20, 30, 40},
		Params: law.Params{
			Kind: law.Bucket, Anchor: law.Calendar, Unit: 5, Capacity: 1, Step: 1, Drain: 1,
		},
	}
	l := wire.NewLayout("cost verb drain window3 how count deferred partial unit group")
	if got, want := l.Append(nil, &op), []int64{7, 1, 1, 40, 2, 3, 1, 0, 5, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if l.Place("cost") != 0 || l.Place("group") != len(l)-1 {
		t.Error("Place of cost or group is wrong, want the first and the last")
	}
}

func TestNamesExpandPlaceholders(t *testing.T) {
	names := wire.Names{"op": {"verb", "unit", "cost"}, "out": law.NumberNames[:]}
	for text, want := range map[string]string{
		"p_ops[o + {op.unit}]":         "p_ops[o + 2]",
		"p_ops[k * {op.width} + 1]":    "p_ops[k * 3 + 1]",
		"res[{out.step}]":              "res[15]",
		"'<{op.unit * d}'":             "'<dd'",
		"{each op: p.*} = 1":           "p.verb, p.unit, p.cost = 1",
		"local {each op to unit: *}":   "local verb, unit",
		"[{op: cost => f(a, b[1, 2])}": "[0, 0, f(a, b[1, 2])",
		"[{op: verb => 1,\n    unit => p[o + {op.unit}], cost => 2}]": "[1, p[o + 2], 2]",
		"'{}', '{0,0,0,0}', {0,63}, '{a,b}' { verb = 0 }":             "'{}', '{0,0,0,0}', {0,63}, '{a,b}' { verb = 0 }",
	} {
		if got := names.Expand(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestUnknownNamesPanic(t *testing.T) {
	names := wire.Names{"op": {"verb", "unit"}}
	for _, text := range []string{
		"{op.unti}", "{ops.unit}", "{op.verbs * d}", "{each ops: *}", "{each op to cost: *}",
		"{op: cost => 1}", "{ops: verb => 1}", "{op: verb}", "{op: verb => 1, verb => 2}", "{op: verb => }",
	} {
		if !panics(func() { names.Expand(text) }) {
			t.Errorf("%s: got no panic, want one", text)
		}
	}
	l := wire.NewLayout("verb unit")
	for name, f := range map[string]func(){
		"NewLayout of an unknown name": func() { wire.NewLayout("verb cots") },
		"NewLayout of a name twice":    func() { wire.NewLayout("verb unit verb") },
		"Place":                        func() { l.Place("cost") },
	} {
		if !panics(f) {
			t.Errorf("%s: got no panic, want one", name)
		}
	}
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

func TestAppendDoesNotAllocate(t *testing.T) {
	l := wire.NewLayout("verb kind anchor unit capacity step drain heal cost count how now at")
	ops, buf := make([]law.Op, 1), make([]int64, 0, len(l))
	ops[0].Params = law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1, Drain: 1}
	if n := testing.AllocsPerRun(100, func() { l.Append(buf, &ops[0]) }); n > 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	l := wire.NewLayout("verb group cell kind anchor unit capacity step drain block history cost count how ceiling ttl " +
		"now window0 window1 window2 window3 at level returned entry")
	ops, buf := make([]law.Op, 1), make([]int64, 0, len(l))
	for b.Loop() {
		l.Append(buf, &ops[0])
	}
}
