package accesslog

import (
	"fmt"
	"testing"
)

// TestSSHDRemembersABoundedNumberOfTags checks that a reader remembers at most 2*maxTags processes that logged "Invalid
// user", and no process with a long tag.
func TestSSHDRemembersABoundedNumberOfTags(t *testing.T) {
	t.Parallel()
	rd, err := New(SSHD, []string{"user"}, Config{Attempts: true, Year: 2026})
	if err != nil {
		t.Fatal(err)
	}
	sshd := rd.(*containerLog).Reader.(*sshdReader)
	read := func(format string, args ...any) Record {
		t.Helper()
		rec, err := rd.Read(fmt.Appendf(nil, "Mar 27 14:54:57 host "+format, args...))
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	for i := range 10 * maxTags {
		read("sshd[%d]: Invalid user support from 192.0.2.1", i)
		if got := len(sshd.invalidUserTags) + len(sshd.olderInvalidUserTags); got > 2*maxTags {
			t.Fatalf("%d processes are remembered, want at most %d", got, 2*maxTags)
		}
	}
	read("sshd%0*d: Invalid user support from 192.0.2.1", 2*maxTagBytes, 1)
	if rec := read("sshd%0*d: Failed password for invalid user support from 192.0.2.1 port 1 ssh2", 2*maxTagBytes, 1); rec.Count != 1 {
		t.Errorf("after a long tag: got %+v, want a count of 1", rec)
	}
	for _, ago := range []int{1, maxTags - 1, 10} { // each process now logs the second line about an attempt
		rec := read("sshd[%d]: Failed password for invalid user support from 192.0.2.1 port 1 ssh2", 10*maxTags-ago)
		if rec.Count != 0 || rec.Skip == "" {
			t.Errorf("the process of %d lines ago: got %+v, want a count of 0 and a reason", ago, rec)
		}
	}
}
