package redis

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestAFullDiskIsErrNoSpaceWithoutARetry checks that Apply returns ErrNoSpace without a retry while the disk of the
// server is full, and succeeds when it has room again.
func TestAFullDiskIsErrNoSpaceWithoutARetry(t *testing.T) {
	tier.Nightly(t)
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
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	applyOne := func() error {
		return s.Apply(ctx, []law.Op{takeOne("l", "k", hourly, 0)}, make([]law.Outcome, 1))
	}
	await.Until(t, "a file without room", func() bool { return applyOne() != nil })
	if err := applyOne(); !errors.Is(err, store.ErrNoSpace) || ctx.Err() != nil {
		t.Errorf("got %v, want ErrNoSpace before the deadline", err)
	}
	disk.Free(t)
	ctx = t.Context()
	await.NoError(t, "an answer with room again", applyOne)
}
