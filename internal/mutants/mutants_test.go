package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestHunt hunts the mutants of a package of which it is known which ones its tests find.
func TestHunt(t *testing.T) {
	t.Parallel()
	verdicts, err := hunt(t.Context(), "testdata/sample", &options{workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	var killed, survive []string
	for _, v := range verdicts {
		if v.killer != "" {
			killed = append(killed, v.String())
		} else {
			survive = append(survive, fmt.Sprint(v.reached, " tests: ", v.String()))
		}
	}
	if want := []string{
		"sample.go:13:50 in within: `n >= from || n < from+10` for `n >= from && n < from+10`",
		"sample.go:13:42 in within: `n > from` for `n >= from`",
		"sample.go:13:42 in within: `n < from` for `n >= from`",
		"sample.go:13:55 in within: `n <= from+10` for `n < from+10`",
		"sample.go:13:55 in within: `n >= from+10` for `n < from+10`",
		"sample.go:13:61 in within: `from - 10` for `from+10`",
		"sample.go:13:62 in within: `10 + 1` for `10`",
		"sample.go:13:62 in within: `10 - 1` for `10`",
		"sample.go:17:8 in sum: `n != 0` for `n == 0`",
		"sample.go:17:11 in sum: `0 + 1` for `0`",
		"sample.go:20:3 in sum: `sum -= n` for `sum += n`",
		"sample.go:20:3 in sum: `nothing` for `sum += n`",
		"sample.go:27:14 in next: `2 * (2 * time.Second)` for `2 * time.Second`",
		"sample.go:27:14 in next: `(2 * time.Second) / 2` for `2 * time.Second`",
		"sample.go:28:7 in next: `l.strict` for `!l.strict`",
		"sample.go:30:7 in next: `!l.strict` for `l.strict`",
		"sample.go:30:19 in next: `false` for `len([...]int{1: n}) == 2`",
		"sample.go:31:3 in next: `nothing` for `n = n % step`",
		"sample.go:31:9 in next: `n * step` for `n % step`",
		"sample.go:31:11 in next: `step + 1` for `step`",
		"sample.go:39:7 in parse: `s == \"one\"` for `s != \"one\"`",
		"sample.go:42:9 in parse: `1 + 1` for `1`",
		"sample.go:42:9 in parse: `1 - 1` for `1`",
	}; !slices.Equal(killed, want) {
		t.Errorf("killed: %q\nwant: %q", killed, want)
	}
	if want := []string{
		"1 tests: sample.go:17:11 in sum: `0 - 1` for `0`",
		"1 tests: sample.go:18:4 in sum: `nothing` for `continue`",
		"1 tests: sample.go:26:2 in next: `nothing` for `defer func() { n++ }()`",
		"1 tests: sample.go:26:17 in next: `n--` for `n++`",
		"1 tests: sample.go:26:17 in next: `nothing` for `n++`",
		"1 tests: sample.go:30:16 in next: `l.strict || len([...]int{1: n}) == 2` for `l.strict && len([...]int{1: n}) == 2`",
		"1 tests: sample.go:31:11 in next: `step - 1` for `step`",
		"0 tests: sample.go:36:29 in nobody: `false` for `true`",
	}; !slices.Equal(survive, want) {
		t.Errorf("survive: %q\nwant: %q", survive, want)
	}
}

// TestChoose chooses some mutants, the same ones for the same seed, in their order.
func TestChoose(t *testing.T) {
	t.Parallel()
	numbers := func(o options) (n []int) {
		all := make([]*mutant, 50)
		for i := range all {
			all[i] = &mutant{n: i + 1, in: fmt.Sprint("f", i%10), file: fmt.Sprint(i/10, ".go")}
		}
		for _, m := range choose(all, &o) {
			n = append(n, m.n)
		}
		return n
	}
	some := numbers(options{max: 10, seed: 1})
	if len(some) != 10 || !slices.IsSorted(some) || !slices.Equal(some, numbers(options{max: 10, seed: 1})) {
		t.Errorf("seed 1 chose %v, then others", some)
	}
	if other := numbers(options{max: 10, seed: 2}); slices.Equal(some, other) {
		t.Errorf("seeds 1 and 2 chose %v", other)
	}
	if n := numbers(options{max: 60}); len(n) != 50 {
		t.Errorf("%d of 50", len(n))
	}
	if n := numbers(options{only: "7,50"}); !slices.Equal(n, []int{7, 50}) {
		t.Errorf("only 7 and 50: %v", n)
	}
	if n := numbers(options{in: "f3,4.go"}); !slices.Equal(n, []int{4, 14, 24, 34, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50}) {
		t.Errorf("in f3 and 4.go: %v", n)
	}
	if n := numbers(options{in: "f3", max: 2}); len(n) != 2 || n[0]%10 != 4 || n[1]%10 != 4 {
		t.Errorf("two in f3: %v", n)
	}
}
