package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestAServerWithoutRoomForItsLogSaysSoAtOnce is about a server that goes on without what it could not write, and
// refuses further writes.
func TestAServerWithoutRoomForItsLogSaysSoAtOnce(t *testing.T) {
	if !dbtest.Namespace(t) {
		return
	}
	disk := dbtest.NewDisk(t, 8<<20)
	server, err := (&dbtest.Config{
		Data: disk.Path, Args: []string{"--appendonly", "yes", "--appendfsync", "everysec"},
	}).Redis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	s := openTest(t, server.DSN, nil)
	disk.Fill(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func() error {
		return s.Apply(ctx, []law.Op{takeOne("l", "k", hourly, 0)}, make([]law.Outcome, 1))
	}
	for err = ask(); err == nil; err = ask() { // until its file has no room
		time.Sleep(time.Millisecond)
	}
	begin := time.Now()
	if err := ask(); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("%v, want ErrNoSpace", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %s: it was asked until the deadline", took)
	}
	disk.Free(t)
	for end := time.Now().Add(time.Minute); ask() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("with room again it does not go on")
		}
	}
}
