package guard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// scriptedStore is a store that fails as a test says.
type scriptedStore struct {
	opErrs []error // one for each op
	err    error   // the error of Apply
}

func (s *scriptedStore) Apply(_ context.Context, ops []law.Op, outs []law.Outcome) error {
	for i := range ops {
		outs[i] = law.Outcome{Granted: 7}
		if i < len(s.opErrs) {
			outs[i].Err = s.opErrs[i]
		}
	}
	return s.err
}

func (*scriptedStore) Sweep(context.Context, int) (int, error) { return 0, nil }
func (*scriptedStore) Close() error                            { return nil }

// takesOf returns takes of limits with "away allow" or "away deny": "aa d" is a group of two ops that allow, and a
// group of one op that denies.
func takesOf(groups string) (ops []law.Op) {
	for n, group := range strings.Fields(groups) {
		for _, policy := range group {
			p := law.Params{Kind: law.Bucket, Away: law.AwayDeny, Unit: 1, Capacity: 10, Step: 1_000_000, Drain: 1}
			if policy == 'a' {
				p.Away = law.AwayAllow
			}
			ops = append(ops, law.Op{
				Verb: law.Take, Group: uint32(n + 1), Params: p, Cost: 3, Count: 1,
				Cell: law.Cell{Limit: "l " + string(policy), Key: fmt.Sprint(len(ops))},
			})
		}
	}
	return ops
}

// Errors of ops: two of an absent store, and one of the caller.
var (
	errA   = fmt.Errorf("%w: A", store.ErrUnavailable)
	errB   = fmt.Errorf("%w: B", store.ErrReadOnly)
	errBad = law.Invalid("key", "is bad")
)

// TestEachGroupIsDecidedByItself checks for each op whether the store or the fallback decides it, or its error.
func TestEachGroupIsDecidedByItself(t *testing.T) {
	for _, c := range []struct {
		name     string
		groups   string
		opErrs   []error
		err      error
		want     string // s: by the store, g: by the fallback, A, B: errA, errB, !: another error, 0: empty
		result   error
		degraded int64 // ops that the fallback decides
	}{
		{"the store answers all", "a aa d", nil, nil, "s ss s", nil, 0},
		{"one group fails", "a aa d", []error{nil, errA, errA}, nil, "s gg s", nil, 2},
		{"the first of a group fails", "a aaa a", []error{nil, errA}, nil, "s ggg s", nil, 3},
		{"the last of a group fails", "a aaa a", []error{nil, nil, nil, errA}, nil, "s ggg s", nil, 3},
		{"all fail one by one", "a a a", []error{errA, errA, errA}, nil, "g g g", nil, 3},
		{"groups with errors of their own", "d d a", []error{errA, errB, errA}, nil, "A B g", nil, 1},
		{"all of a group get its error", "dd a", []error{errA, errB}, nil, "AA s", nil, 0},
		{"an error of the caller", "aa a", []error{errBad, errBad}, nil, "!! s", nil, 0},
		{"the batch fails", "a dd a", []error{errA, errA, errA, errA}, errA, "g AA g", nil, 2},
		{"the batch fails, with errors of some groups", "a d d a", []error{nil, errB}, errA, "g B A g", nil, 2},
		{"the batch fails and nobody answers", "d dd", nil, errA, "0 00", errA, 0},
		{"the batch fails and nobody answers, with errors of some groups", "d dd", []error{errB}, errA, "0 00", errB, 0},
		{"the batch fails for good", "a a", []error{errBad, nil}, store.ErrSetup, "! 0", store.ErrSetup, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := guard.New(&scriptedStore{opErrs: c.opErrs, err: c.err}, silentConfig(nil))
			defer g.Close()
			ops := takesOf(c.groups)
			outs := make([]law.Outcome, len(ops))
			if err := g.Apply(t.Context(), ops, outs); !errors.Is(err, c.result) {
				t.Errorf("got %v, want %v", err, c.result)
			}
			for i, want := range strings.ReplaceAll(c.want, " ", "") {
				if got := letterOf(&outs[i]); got != string(want) {
					t.Errorf("op %d: got %s, want %c: %+v", i, got, want, outs[i])
				}
			}
			if st := g.Stats(); st.Degraded != c.degraded || st.Away {
				t.Errorf("got %+v, want %d degraded", st, c.degraded)
			}
		})
	}
}

// letterOf returns the letter that stands for an outcome in TestEachGroupIsDecidedByItself.
func letterOf(out *law.Outcome) string {
	switch {
	case errors.Is(out.Err, errA):
		return "A"
	case errors.Is(out.Err, errB):
		return "B"
	case out.Err != nil:
		return "!"
	case out.Via == law.ViaFallback:
		return "g"
	case out.Granted == 7:
		return "s"
	case *out == law.Outcome{}:
		return "0"
	}
	return "something else"
}

// TestOutcomesOfTheFallback checks that a fallback admission has the figures of a cell with this charge alone.
func TestOutcomesOfTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard.New(&scriptedStore{err: errA}, silentConfig(nil))
		defer g.Close()
		ops := takesOf("a a a")
		ops[0].Now = 12345
		ops[2].Cost, ops[2].Params.Capacity = 30, 20
		outs := make([]law.Outcome, 3)
		if err := g.Apply(t.Context(), ops, outs); err != nil {
			t.Fatal(err)
		}
		now := time.Now().UnixMicro()
		for i, want := range []struct{ clock, used int64 }{{12345, 3}, {now, 3}, {now, 20}} {
			p := &ops[i].Params
			if outs[i] != (law.Outcome{
				Granted: 1, Used: want.used, Clock: want.clock, Via: law.ViaFallback,
				State: law.State{Kind: p.Kind, At: want.clock, Unit: p.Unit, Step: p.Step, EmptyAt: want.clock},
			}) {
				t.Errorf("op %d: got %+v", i, outs[i])
			}
		}
		ops = takesOf("a a")
		ops[1].Cost = -1
		if err := g.Apply(t.Context(), ops, outs[:2]); err != nil || !errors.Is(outs[1].Err, law.ErrInvalid) {
			t.Errorf("an invalid op: got %v, %v; want %v", err, outs[1].Err, law.ErrInvalid)
		}
	})
}

func TestDeadlineOfInfo(t *testing.T) {
	for _, c := range []struct {
		inner store.Store
		cfg   guard.Config
		want  time.Duration
	}{
		{&scriptedStore{}, guard.Config{}, guard.DefaultDeadline},
		{&scriptedStore{}, guard.Config{Deadline: time.Second}, time.Second},
		{&scriptedStore{}, guard.Config{Deadline: -1}, guard.DefaultDeadline},
		{nil, guard.Config{}, guard.DefaultDeadline}, // without a store
	} {
		if got := guard.New(c.inner, &c.cfg).Info().Deadline; got != c.want {
			t.Errorf("%T with %+v: got %s, want %s", c.inner, c.cfg, got, c.want)
		}
	}
}

// TestLinesWhenTheStoreGoesAndComesBack checks the two lines, by the logger of the Config or by the default one.
func TestLinesWhenTheStoreGoesAndComesBack(t *testing.T) {
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	oldDefault := slog.Default()
	defer slog.SetDefault(oldDefault)
	for _, cfg := range []*guard.Config{nil, {Logger: logger}} {
		text.Reset()
		if slog.SetDefault(logger); cfg != nil {
			slog.SetDefault(slog.New(slog.DiscardHandler))
		}
		synctest.Test(t, func(t *testing.T) {
			inner := &scriptedStore{err: errA}
			g := guard.New(inner, cfg)
			defer g.Close()
			outs := make([]law.Outcome, 2)
			for range 9 {
				_ = g.Apply(t.Context(), takesOf("aa"), outs)
			}
			inner.err = nil
			time.Sleep(time.Second)
			_ = g.Apply(t.Context(), takesOf("aa"), outs)
		})
		got := text.String()
		if strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=ERROR msg="the store is away`) ||
			!strings.Contains(got, "store unavailable: A") || !strings.Contains(got, `msg="the store is back"`) ||
			!strings.Contains(got, "answered_without_it=10") {
			t.Errorf("with %+v: got log\n%s", cfg, got)
		}
	}
}

// TestTakeOneGoesToTheStore checks that TakeOne of the store decides, if it has one.
func TestTakeOneGoesToTheStore(t *testing.T) {
	op := takesOf("d")[0]
	g := guard.New(memory.New(nil), silentConfig(nil))
	defer g.Close()
	if b, ok := g.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost); !ok || !b.Granted {
		t.Errorf("memory: got %+v, %v; want it granted", b, ok)
	}
	g = guard.New(&scriptedStore{}, silentConfig(nil))
	defer g.Close()
	if b, ok := g.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost); ok {
		t.Errorf("a store without TakeOne: got %+v, %v; want it undecided", b, ok)
	}
}
