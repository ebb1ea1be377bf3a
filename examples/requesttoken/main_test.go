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

// TestTwoOfFiveCallsASecondSucceed runs the program for three seconds of simulated time.
func TestTwoOfFiveCallsASecondSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out, "memory:", limit, 3); err != nil {
			t.Fatal(err)
		}
		for second := range 3 {
			prefix := fmt.Sprintf("%4dms -> ", 1000*second)
			done := strings.Count(out.String(), prefix+"result: done | error: <nil>\n")
			denied := strings.Count(out.String(),
				prefix+`result:      | error: limit fixed-window 2/1s from-first refuses "payments"`)
			if done != 2 || denied != 3 {
				t.Errorf("second %d: got %d done and %d denied, want 2 and 3\n%s", second, done, denied, &out)
			}
		}
	})
}

// TestProcessesShareTheTokens runs the program twice at the same time over one file.
func TestProcessesShareTheTokens(t *testing.T) {
	storeURL := "sqlite:" + filepath.Join(t.TempDir(), "tokens.db") + "?synchronous=normal"
	limit := headgate.MustParse("fixed-window 4/1d from-first")
	synctest.Test(t, func(t *testing.T) {
		var outs [2]bytes.Buffer
		var group sync.WaitGroup
		for i := range outs {
			group.Go(func() {
				if err := run(t.Context(), &outs[i], storeURL, limit, 1); err != nil {
					t.Errorf("run: got %v, want no error", err)
				}
			})
		}
		group.Wait()
		output := outs[0].String() + outs[1].String()
		if done := strings.Count(output, "result: done"); done != 4 || strings.Count(output, "\n") != 10 {
			t.Errorf("got %d done, want 4 of 10\n%s", done, output)
		}
	})
}

func TestRunHidesThePasswordOfAnInvalidURL(t *testing.T) {
	err := run(t.Context(), t.Output(), "ftp://user:secret@host/", limit, 1)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the password", err)
	}
}
