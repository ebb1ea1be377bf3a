//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTopCountLeavesTablesOnTheTerminal checks that top --count opens no full-screen page.
func TestTopCountLeavesTablesOnTheTerminal(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + t.TempDir() + "/h.db"
	control, tty := openTerminal(t)
	var stderr bytes.Buffer
	for _, args := range [][]string{
		{"take", "sliding-log 5/1m", "alice", "--store", store},
		{"top", "--count", "2", "--every", "100ms", "--store", store},
	} {
		if code := runMain(t.Context(), args, tty, tty, &stderr); code != 0 {
			t.Fatalf("%s: code %d: %s", args[0], code, stderr.String())
		}
	}
	if _, err := tty.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for b := make([]byte, 4096); !strings.Contains(got.String(), "end\r\n"); {
		n, err := control.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(b[:n])
	}
	if strings.Contains(got.String(), "\x1b") || strings.Count(got.String(), "alice") < 2 {
		t.Errorf("got %q, want two tables about alice, and no escapes", got.String())
	}
}

// openTerminal opens a pseudo-terminal: the control side, and the side of the program.
func openTerminal(t *testing.T) (control, tty *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return control, tty
}
