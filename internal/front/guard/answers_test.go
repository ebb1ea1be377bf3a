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

// scripted is a store whose answers a test gives.
type scripted struct {
	errs []error // of each op
	err  error   // of the batch
}

func (s *scripted) Apply(_ context.Context, ops []law.Op, outs []law.Outcome) error {
	for i := range ops {
		outs[i] = law.Outcome{Granted: 7}
		if i < len(s.errs) {
			outs[i].Err = s.errs[i]
		}
	}
	return s.err
}

func (*scripted) Sweep(context.Context, int) (int, error) { return 0, nil }
func (*scripted) Close() error                            { return nil }

// asks makes takes of groups, under limits that allow or deny: "aa d" is a group of two ops that allow, and one that
// denies.
func asks(groups string) (ops []law.Op) {
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

var (
	errA   = fmt.Errorf("%w: A", store.ErrUnavailable)
	errB   = fmt.Errorf("%w: B", store.ErrReadOnly)
	errBad = law.Invalid("key", "is bad")
)

// TestEachGroupIsAnsweredByItself says of each op whether the store, the guard or nobody answered it.
func TestEachGroupIsAnsweredByItself(t *testing.T) {
	for _, c := range []struct {
		name   string
		groups string
		errs   []error
		err    error
		want   string // s: the store's answer, g: the guard's, A, B, F, !: that error
		result error
		alone  int64 // how many were answered without the store
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
			g := guard.New(&scripted{errs: c.errs, err: c.err}, quiet(nil))
			defer g.Close()
			ops := asks(c.groups)
			outs := make([]law.Outcome, len(ops))
			if err := g.Apply(t.Context(), ops, outs); !errors.Is(err, c.result) {
				t.Errorf("%v, want %v", err, c.result)
			}
			for i, want := range strings.ReplaceAll(c.want, " ", "") {
				if got := answerer(&outs[i]); got != string(want) {
					t.Errorf("op %d: %s, want %c: %+v", i, got, want, outs[i])
				}
			}
			if st := g.Stats(); st.Degraded != c.alone || st.Away {
				t.Errorf("%+v, want %d that were answered alone", st, c.alone)
			}
		})
	}
}

func answerer(out *law.Outcome) string {
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

// TestAdmittedWithoutTheStore: the decision has the figures of a cell that only this charge has touched.
func TestAdmittedWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard.New(&scripted{err: errA}, quiet(nil))
		defer g.Close()
		ops := asks("a a a")
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
				t.Errorf("op %d: %+v", i, outs[i])
			}
		}
		ops = asks("a a")
		ops[1].Cost = -1
		if err := g.Apply(t.Context(), ops, outs[:2]); err != nil || !errors.Is(outs[1].Err, law.ErrInvalid) {
			t.Errorf("an op that is not valid: %v, %v", err, outs[1].Err)
		}
	})
}

func TestTheDeadline(t *testing.T) {
	for _, c := range []struct {
		inner store.Store
		cfg   guard.Config
		want  time.Duration
	}{
		{&scripted{}, guard.Config{}, guard.DefaultDeadline},
		{&scripted{}, guard.Config{Deadline: time.Second}, time.Second},
		{&scripted{}, guard.Config{Deadline: -1}, guard.DefaultDeadline},
		{nil, guard.Config{}, guard.DefaultDeadline}, // for a look at the settings
	} {
		if got := guard.New(c.inner, &c.cfg).Info().Deadline; got != c.want {
			t.Errorf("%T with %+v: %s, want %s", c.inner, c.cfg, got, c.want)
		}
	}
}

// TestTheLogSaysWhenTheStoreGoesAndComesBack to the logger of the Config, or else to the default one.
func TestTheLogSaysWhenTheStoreGoesAndComesBack(t *testing.T) {
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	before := slog.Default()
	defer slog.SetDefault(before)
	for _, cfg := range []*guard.Config{nil, {Logger: logger}} {
		text.Reset()
		if slog.SetDefault(logger); cfg != nil {
			slog.SetDefault(slog.New(slog.DiscardHandler))
		}
		synctest.Test(t, func(t *testing.T) {
			inner := &scripted{err: errA}
			g := guard.New(inner, cfg)
			defer g.Close()
			outs := make([]law.Outcome, 2)
			for range 9 {
				_ = g.Apply(t.Context(), asks("aa"), outs)
			}
			inner.err = nil
			time.Sleep(time.Second)
			_ = g.Apply(t.Context(), asks("aa"), outs)
		})
		got := text.String()
		if strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=ERROR msg="the store is away`) ||
			!strings.Contains(got, "store unavailable: A") || !strings.Contains(got, `msg="the store is back"`) ||
			!strings.Contains(got, "answered_without_it=10") {
			t.Errorf("with %+v the log says:\n%s", cfg, got)
		}
	}
}

// TestTakeOneGoesToTheStore if that can take one.
func TestTakeOneGoesToTheStore(t *testing.T) {
	op := asks("d")[0]
	g := guard.New(memory.New(nil), quiet(nil))
	defer g.Close()
	if b, ok := g.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost); !ok || !b.Granted {
		t.Errorf("memory: %+v, %v", b, ok)
	}
	g = guard.New(&scripted{}, quiet(nil))
	defer g.Close()
	if b, ok := g.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost); ok {
		t.Errorf("a store that cannot: %+v, %v", b, ok)
	}
}
