package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/postgres"
)

// silentStore is a store that does not answer before the context ends.
type silentStore struct {
	store.Store
	store.Inspector
	err error // then, with the context's; nil: that alone
}

func (s silentStore) Apply(ctx context.Context, _ []law.Op, _ []law.Outcome) error {
	<-ctx.Done()
	if s.err == nil {
		return ctx.Err()
	}
	return fmt.Errorf("silent: %w: %w", s.err, ctx.Err())
}

func (s silentStore) Cells(ctx context.Context, _ store.Query) ([]store.Cell, int64, error) {
	return nil, 0, s.Apply(ctx, nil, nil)
}

// calls returns all calls that do not wait, by their names.
func calls(l *headgate.Limiter) map[string]func(context.Context) error {
	return callsOf(l, charges("k", "1 of token-bucket 1/s")[0], charges("k", "1 of gcra 1/s")[0],
		charges("k", "1 of concurrency 10 ttl 30s")[0])
}

// callsOf returns all calls that do not wait, by their names, for a charge to take, another one, and a concurrency
// charge.
func callsOf(l *headgate.Limiter, bucket, other, ten headgate.Charge) map[string]func(context.Context) error {
	two := []headgate.Charge{bucket, other}
	held := headgate.LeaseToken{Limit: ten.Limit, Key: "k", Number: 1}
	once := l.Once("id", 0)
	return map[string]func(context.Context) error{
		"Allow":  func(ctx context.Context) error { _, err := l.Allow(ctx, bucket.Limit, "k"); return err },
		"Take":   func(ctx context.Context) error { _, err := l.Take(ctx, two...); return err },
		"Check":  func(ctx context.Context) error { _, err := l.Check(ctx, bucket); return err },
		"FillUp": func(ctx context.Context) error { _, err := l.FillUp(ctx, bucket); return err },
		"Batch": func(ctx context.Context) error {
			answers, err := l.Batch(ctx, []headgate.Request{{Charges: []headgate.Charge{bucket}}})
			if err == nil {
				err = answers[0].Err
			}
			return err
		},
		"Block":     func(ctx context.Context) error { _, err := l.Block(ctx, bucket.Limit, "k", time.Hour, ""); return err },
		"Reset":     func(ctx context.Context) error { _, err := l.Reset(ctx, bucket.Limit, "k"); return err },
		"Inspect":   func(ctx context.Context) error { _, err := l.Inspect(ctx, bucket.Limit, "k"); return err },
		"Usage":     func(ctx context.Context) error { _, err := l.Usage(ctx, "k", bucket.Limit); return err },
		"List":      func(ctx context.Context) error { _, err := l.List(ctx, store.Query{}); return err },
		"Reserve":   func(ctx context.Context) error { _, err := l.Reserve(ctx, time.Minute, bucket); return err },
		"Acquire":   func(ctx context.Context) error { _, err := l.Acquire(ctx, ten); return err },
		"Renew":     func(ctx context.Context) error { return l.Renew(ctx, held) },
		"Release":   func(ctx context.Context) error { return l.Release(ctx, held) },
		"Once.Take": func(ctx context.Context) error { _, err := once.Take(ctx, bucket); return err },
		"Once.Reserve": func(ctx context.Context) error {
			_,
				err := once.Reserve(ctx, time.Minute, bucket)
			return err
		},
		"Once.Settle":  func(ctx context.Context) error { _, err := once.Settle(ctx, bucket); return err },
		"Once.Cancel":  func(ctx context.Context) error { _, err := once.Cancel(ctx, bucket); return err },
		"WaitAtMost 0": func(ctx context.Context) error { return l.WaitAtMost(ctx, 0, bucket) },
		"AwaitAtMost 0": func(ctx context.Context) error {
			_, err := l.AwaitAtMost(ctx, 0, ten)
			return err
		},
		"RequestToken": headgate.NewRequester(l, bucket).RequestToken,
	}
}

func TestACallThatDecidesAtOnceHasADeadline(t *testing.T) {
	for _, tt := range []struct {
		timeout, context time.Duration // context 0: no deadline
		want             time.Duration // 0: an hour, that of the test
		named            bool
	}{
		{timeout: 0, want: headgate.DefaultTimeout, named: true},
		{timeout: time.Second, want: time.Second, named: true},
		{timeout: time.Second, context: time.Minute, want: time.Second, named: true},
		{timeout: 0, context: time.Second, want: time.Second},
		{timeout: -1, context: time.Minute, want: time.Minute},
	} {
		for _, class := range []error{nil, store.ErrUnknownOutcome, store.ErrUnavailable} {
			synctest.Test(t, func(t *testing.T) {
				s := silentStore{Store: memory.New(nil), err: class}
				l := headgate.New(s, &headgate.Config{Timeout: tt.timeout})
				for name, call := range calls(l) {
					ctx, cancel := context.WithCancel(t.Context())
					if tt.context > 0 {
						ctx, cancel = context.WithTimeout(ctx, tt.context)
					}
					begin := time.Now()
					err := call(ctx)
					cancel()
					if took := time.Since(begin); took != tt.want || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s, timeout %s, context %s: %v after %s, want the deadline after %s", name,
							tt.timeout, tt.context, err, took, tt.want)
					}
					if named := strings.Contains(fmt.Sprint(err), "Timeout of headgate.Config"); named != tt.named {
						t.Errorf("%s, timeout %s, context %s: %v; the setting is named: %v, want %v", name, tt.timeout,
							tt.context, err, named, tt.named)
					}
					want := class
					if class == nil && tt.named { // whether the store was called is not known
						want = store.ErrUnknownOutcome
						if name == "List" || name == "Inspect" || name == "Usage" { // which charge nothing
							want = store.ErrUnavailable
						}
					}
					if want != nil && !errors.Is(err, want) {
						t.Errorf("%s: %v, want %v", name, err, want)
					}
				}
			})
		}
	}
}

// TestWaitingHasTheDeadlineOfItsContext checks that waiting calls end with their context, also during a call of the
// store.
func TestWaitingHasTheDeadlineOfItsContext(t *testing.T) {
	for _, limit := range []string{"token-bucket 1/s", "fixed-window 1/1s", "concurrency 10 ttl 30s"} {
		synctest.Test(t, func(t *testing.T) {
			l := headgate.New(silentStore{Store: memory.New(nil)}, nil)
			charge := charges("k", "1 of "+limit)[0]
			for name, wait := range map[string]func(context.Context) error{
				"wait": func(ctx context.Context) error {
					if charge.Limit.Concurrency() {
						_, err := l.Await(ctx, charge)
						return err
					}
					return l.Wait(ctx, charge)
				},
				"at most": func(ctx context.Context) error {
					if charge.Limit.Concurrency() {
						_, err := l.AwaitAtMost(ctx, time.Hour, charge)
						return err
					}
					return l.WaitAtMost(ctx, time.Hour, charge)
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				begin := time.Now()
				err := wait(ctx)
				cancel()
				if took := time.Since(begin); took != time.Minute || !errors.Is(err, context.DeadlineExceeded) ||
					strings.Contains(err.Error(), "Config") {
					t.Errorf("%s of %s: %v after %s, want the context's deadline after a minute", name,
						limit, err, took)
				}
			}
		})
	}
}

// TestALockedCellIsNotWaitedForLonger lets another transaction hold the cell, such as one of headgate.take in psql that
// is left open.
func TestALockedCellIsNotWaitedForLonger(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := migrated.Postgres(t)
	s, err := postgres.Open(ctx, dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	limit := headgate.MustParse("token-bucket 5/1h")
	if _, err := headgate.New(s, &headgate.Config{Timeout: time.Minute}).Allow(ctx, limit, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "begin; select * from headgate.take('token-bucket 5/1h', 'k')"); err != nil {
		t.Fatal(err)
	}
	stack := front.New(s, &front.Config{SweepEvery: -1})
	for name, s := range map[string]store.Store{"the driver": s, "the stack": stack} {
		l := headgate.New(s, &headgate.Config{Timeout: 300 * time.Millisecond})
		err := store.ErrUnavailable
		await.Until(t, name+" to be asked in time", func() bool {
			asked := make(chan error, 1)
			go func() {
				_, err := l.Allow(ctx, limit, "k")
				asked <- err
			}()
			err = await.Receive(t, name+" to give up", asked)
			return !errors.Is(err, store.ErrUnavailable) // the machine has paused before the question was sent
		})
		if !errors.Is(err, store.ErrUnknownOutcome) || !strings.Contains(err.Error(), "Timeout of headgate.Config") {
			t.Errorf("%s: %v, want an unknown outcome after 300 ms", name, err)
		}
	}
}

// TestALimiterWithoutAStoreSaysSo checks that all calls of such a limiter return ErrInvalid.
func TestALimiterWithoutAStoreSaysSo(t *testing.T) {
	for made, l := range map[string]*headgate.Limiter{
		"New(nil, nil)":    headgate.New(nil, nil),
		"the zero Limiter": new(headgate.Limiter),
	} {
		for name, call := range calls(l) {
			if err := call(t.Context()); !errors.Is(err, headgate.ErrInvalid) ||
				!strings.Contains(err.Error(), "limiter: has no store") {
				t.Errorf("%s of %s: %v", name, made, err)
			}
		}
	}
}
