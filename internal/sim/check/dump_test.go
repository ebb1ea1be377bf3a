package check_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestDump(t *testing.T) {
	var which, jumps, from, to int
	var seed uint64
	var key string
	if n, _ := fmt.Sscan(os.Getenv("DUMP"), &which, &seed, &jumps, &from, &to, &key); n < 6 {
		t.Skip()
	}
	h := play(t, seed, which, 120, 0, jumps == 1)
	for i, e := range h.Events {
		if i < from || i > to {
			continue
		}
		s := fmt.Sprintf("%d T=%d ", i, e.T/1000)
		if e.Call != nil {
			s += fmt.Sprintf("%+v", *e.Call)
		}
		if e.Return != nil {
			s += fmt.Sprintf("%+v rel=%d", *e.Return, e.Return.At-base)
		}
		if e.Fault != nil {
			s += fmt.Sprintf("FAULT %+v", *e.Fault)
		}
		if e.State != nil {
			s += fmt.Sprintf("%+v", *e.State)
		}
		fmt.Println(strings.ReplaceAll(s, "Partial:false ", ""))
	}
}
