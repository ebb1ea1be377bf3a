package sample

import (
	"testing"
	"time"
)

func TestWithin(t *testing.T) {
	for n, want := range map[int]bool{4: false, 5: true, 14: true, 15: false} {
		if within(n, 5) != want {
			t.Errorf("within(%d, 5) is %v", n, !want)
		}
	}
}

func TestSum(t *testing.T) {
	if got := sum([]int{1, 0, 4}); got != 5 {
		t.Errorf("sum is %d", got)
	}
}

func TestNext(t *testing.T) {
	if got := (&limit{}).next(7); got != 2*time.Second {
		t.Errorf("not strict: %v", got)
	}
	if got := (&limit{strict: true}).next(7); got != 1 {
		t.Errorf("strict: %v", got)
	}
}

func TestParse(t *testing.T) {
	if n, err := parse("one"); n != 1 || err != nil {
		t.Errorf("one: %d, %v", n, err)
	}
}
