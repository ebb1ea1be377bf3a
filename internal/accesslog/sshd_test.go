package accesslog

import (
	"fmt"
	"testing"
)

// TestAnnouncementsAreBounded: only so many processes that logged "Invalid user" are remembered, and none of a long
// name.
func TestAnnouncementsAreBounded(t *testing.T) {
	t.Parallel()
	rd, err := New(SSHD, []string{"user"}, Config{Attempts: true, Year: 2026})
	if err != nil {
		t.Fatal(err)
	}
	a := rd.(*containerLog).Reader.(*sshdReader)
	read := func(format string, args ...any) Record {
		t.Helper()
		rec, err := rd.Read(fmt.Appendf(nil, "Mar 27 14:54:57 host "+format, args...))
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	for i := range 10 * maxAnnounced {
		read("sshd[%d]: Invalid user support from 192.0.2.1", i)
		if got := len(a.announced) + len(a.announcedBefore); got > 2*maxAnnounced {
			t.Fatalf("%d processes are remembered", got)
		}
	}
	read("sshd%0*d: Invalid user support from 192.0.2.1", 2*maxTag, 1)
	if rec := read("sshd%0*d: Failed password for invalid user support from 192.0.2.1 port 1 ssh2", 2*maxTag, 1); rec.Count != 1 {
		t.Errorf("a long name was remembered: %+v", rec)
	}
	for _, ago := range []int{1, maxAnnounced - 1, 10} { // these are second lines about an attempt
		rec := read("sshd[%d]: Failed password for invalid user support from 192.0.2.1 port 1 ssh2", 10*maxAnnounced-ago)
		if rec.Count != 0 || rec.Skip == "" {
			t.Errorf("the process that was %d announcements ago: %+v", ago, rec)
		}
	}
}
