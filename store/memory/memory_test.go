package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return memory.New(nil) }, &storetest.Options{Histories: 20000})
}

func TestAFullStoreForgetsOnlyWhatCouldRefuseNobody(t *testing.T) {
	const most = 64 * 4
	now := int64(1_790_000_000_000_000)
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxKeys: most})
	p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 1_000_000, Step: 1, Drain: 1}
	ask := func(key string) law.Outcome {
		outs := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(), []law.Op{{Verb: law.Take, Cell: law.Cell{Limit: "l", Key: key}, Params: p, Cost: 1_000_000, Count: 1}}, outs); err != nil {
			t.Fatal(err)
		}
		return outs[0]
	}
	full := 0
	for i := range 10 * most {
		out := ask(fmt.Sprint(i))
		if errors.Is(out.Err, store.ErrFull) {
			if full++; out.Granted != 0 {
				t.Fatal("admitted without keeping track")
			}
		}
	}
	if full < 9*most {
		t.Errorf("%d of %d new keys were refused by a full store of %d", full, 10*most, most)
	}
	now += 2_000_000 // all of them are empty again
	for i := range most {
		if out := ask(fmt.Sprint("new ", i)); i < 4 && out.Err != nil {
			t.Fatalf("no room though every cell is empty: %v", out.Err)
		}
	}
}
