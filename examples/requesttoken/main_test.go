package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestTwoOfFiveInEachSecond runs the program for three seconds of simulated time.
func TestTwoOfFiveInEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out, "memory:", rule, 3); err != nil {
			t.Fatal(err)
		}
		for second := range 3 {
			at := fmt.Sprintf("%4dms -> ", 1000*second)
			done := strings.Count(out.String(), at+"result: done | error: <nil>\n")
			denied := strings.Count(out.String(),
				at+`result:      | error: limit fixed-window 2/1s from-first refuses "payments"`)
			if done != 2 || denied != 3 {
				t.Errorf("second %d: %d done and %d denied, want 2 and 3\n%s", second, done, denied, &out)
			}
		}
	})
}

// TestProcessesShareTheTokens runs the program twice at the same time over one file.
func TestProcessesShareTheTokens(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "tokens.db") + "?synchronous=normal"
	rule := headgate.MustParse("fixed-window 4/1d from-first")
	synctest.Test(t, func(t *testing.T) {
		var outs [2]bytes.Buffer
		var both sync.WaitGroup
		for i := range outs {
			both.Go(func() {
				if err := run(t.Context(), &outs[i], store, rule, 1); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		all := outs[0].String() + outs[1].String()
		if done := strings.Count(all, "result: done"); done != 4 || strings.Count(all, "\n") != 10 {
			t.Errorf("%d done, want 4 of 10\n%s", done, all)
		}
	})
}

func TestUnknownStore(t *testing.T) {
	err := run(t.Context(), t.Output(), "ftp://user:secret@host/", rule, 1)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}
