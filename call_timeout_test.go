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
	class error // the class of the error that wraps the context's error; nil: the context's error alone
}

func (s silentStore) Apply(ctx context.Context, _ []law.Op, _ []law.Outcome) error {
	<-ctx.Done()
	if s.class == nil {
		return ctx.Err()
	}
	return fmt.Errorf("silent: %w: %w", s.class, ctx.Err())
}

func (s silentStore) Cells(ctx context.Context, _ store.Query) ([]store.Cell, int64, error) {
	return nil, 0, s.Apply(ctx, nil, nil)
}

// nonWaitingCalls returns calls of a Limiter that do not wait for room, by their names.
func nonWaitingCalls(l *headgate.Limiter) map[string]func(context.Context) error {
	return nonWaitingCallsFor(l, charges("k", "1 of token-bucket 1/s")[0], charges("k", "1 of gcra 1/s")[0],
		charges("k", "1 of concurrency 10 ttl 30s")[0])
}

// nonWaitingCallsFor returns calls that do not wait for room, by their names. Acquire and its kin get job, a charge of
// a concurrency limit; the other calls get charge, and Take gets other besides.
func nonWaitingCallsFor(l *headgate.Limiter, charge, other, job headgate.Charge) map[string]func(
	context.Context) error {
	token := headgate.LeaseToken{Limit: job.Limit, Key: "k", Number: 1}
	once := l.Once("id", 0)
	return map[string]func(context.Context) error{
		"Allow":  func(ctx context.Context) error { _, err := l.Allow(ctx, charge.Limit, "k"); return err },
		"Take":   func(ctx context.Context) error { _, err := l.Take(ctx, charge, other); return err },
		"Check":  func(ctx context.Context) error { _, err := l.Check(ctx, charge); return err },
		"FillUp": func(ctx context.Context) error { _, err := l.FillUp(ctx, charge); return err },
		"Batch": func(ctx context.Context) error {
			answers, err := l.Batch(ctx, []headgate.Request{{Charges: []headgate.Charge{charge}}})
			if err == nil {
				err = answers[0].Err
			}
			return err
		},
		"Block":     func(ctx context.Context) error { _, err := l.Block(ctx, charge.Limit, "k", time.Hour, ""); return err },
		"Reset":     func(ctx context.Context) error { _, err := l.Reset(ctx, charge.Limit, "k"); return err },
		"Inspect":   func(ctx context.Context) error { _, err := l.Inspect(ctx, charge.Limit, "k"); return err },
		"Usage":     func(ctx context.Context) error { _, err := l.Usage(ctx, "k", charge.Limit); return err },
		"List":      func(ctx context.Context) error { _, err := l.List(ctx, store.Query{}); return err },
		"Reserve":   func(ctx context.Context) error { _, err := l.Reserve(ctx, time.Minute, charge); return err },
		"Acquire":   func(ctx context.Context) error { _, err := l.Acquire(ctx, job); return err },
		"Renew":     func(ctx context.Context) error { return l.Renew(ctx, token) },
		"Release":   func(ctx context.Context) error { return l.Release(ctx, token) },
		"Once.Take": func(ctx context.Context) error { _, err := once.Take(ctx, charge); return err },
		"Once.Reserve": func(ctx context.Context) error {
			_, err := once.Reserve(ctx, time.Minute, charge)
			return err
		},
		"Once.Settle":  func(ctx context.Context) error { _, err := once.Settle(ctx, charge); return err },
		"Once.Cancel":  func(ctx context.Context) error { _, err := once.Cancel(ctx, charge); return err },
		"WaitAtMost 0": func(ctx context.Context) error { return l.WaitAtMost(ctx, 0, charge) },
		"AwaitAtMost 0": func(ctx context.Context) error {
			_, err := l.AwaitAtMost(ctx, 0, job)
			return err
		},
		"RequestToken": headgate.NewRequester(l, charge).RequestToken,
	}
}

// TestConfigTimeoutBoundsCallsThatDoNotWait checks that such a call ends after Config.Timeout or with its context,
// whichever is earlier, and that the error names the setting if it was the timeout.
func TestConfigTimeoutBoundsCallsThatDoNotWait(t *testing.T) {
	for _, tt := range []struct {
		timeout, ctxTimeout time.Duration // ctxTimeout 0: the context has no deadline
		want                time.Duration // the duration of the call
		namesSetting        bool          // the error names Config.Timeout
	}{
		{timeout: 0, want: headgate.DefaultTimeout, namesSetting: true},
		{timeout: time.Second, want: time.Second, namesSetting: true},
		{timeout: time.Second, ctxTimeout: time.Minute, want: time.Second, namesSetting: true},
		{timeout: 0, ctxTimeout: time.Second, want: time.Second},
		{timeout: -1, ctxTimeout: time.Minute, want: time.Minute},
	} {
		for _, class := range []error{nil, store.ErrUnknownOutcome, store.ErrUnavailable} {
			synctest.Test(t, func(t *testing.T) {
				s := silentStore{Store: memory.New(nil), class: class}
				l := headgate.New(s, &headgate.Config{Timeout: tt.timeout})
				for name, call := range nonWaitingCalls(l) {
					ctx, cancel := context.WithCancel(t.Context())
					if tt.ctxTimeout > 0 {
						ctx, cancel = context.WithTimeout(ctx, tt.ctxTimeout)
					}
					begin := time.Now()
					err := call(ctx)
					cancel()
					if took := time.Since(begin); took != tt.want || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s, timeout %s, context %s: %v after %s, want the deadline after %s", name,
							tt.timeout, tt.ctxTimeout, err, took, tt.want)
					}
					namesSetting := strings.Contains(fmt.Sprint(err), "Timeout of headgate.Config")
					if namesSetting != tt.namesSetting {
						t.Errorf("%s, timeout %s, context %s: %v; the error names the setting: %v, want %v", name,
							tt.timeout, tt.ctxTimeout, err, namesSetting, tt.namesSetting)
					}
					wantClass := class
					if class == nil && tt.namesSetting { // the Limiter gives the error a class
						wantClass = store.ErrUnknownOutcome
						if name == "List" || name == "Inspect" || name == "Usage" { // these calls charge nothing
							wantClass = store.ErrUnavailable
						}
					}
					if wantClass != nil && !errors.Is(err, wantClass) {
						t.Errorf("%s: %v, want %v", name, err, wantClass)
					}
				}
			})
		}
	}
}

// TestWaitEndsWithItsContextDuringAStoreCall checks that Wait, Await and their AtMost variants do not end at the
// Limiter's Timeout, but with their context, while the store does not answer.
func TestWaitEndsWithItsContextDuringAStoreCall(t *testing.T) {
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

// TestTimeoutBoundsTheWaitForALockedRow checks that Allow fails after Timeout with ErrUnknownOutcome while another
// transaction, such as one left open in psql, holds the row's lock.
func TestTimeoutBoundsTheWaitForALockedRow(t *testing.T) {
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
		await.Until(t, name+" to be called in time", func() bool {
			errs := make(chan error, 1)
			go func() {
				_, err := l.Allow(ctx, limit, "k")
				errs <- err
			}()
			err = await.Receive(t, name+" to give up", errs)
			return !errors.Is(err, store.ErrUnavailable) // the call timed out before it was sent: the machine was slow
		})
		if !errors.Is(err, store.ErrUnknownOutcome) || !strings.Contains(err.Error(), "Timeout of headgate.Config") {
			t.Errorf("%s: %v, want an unknown outcome after 300 ms", name, err)
		}
	}
}

// TestALimiterWithoutAStoreSaysSo checks that calls of a Limiter without a store return an ErrInvalid that says so.
func TestALimiterWithoutAStoreSaysSo(t *testing.T) {
	for constructor, l := range map[string]*headgate.Limiter{
		"New(nil, nil)":    headgate.New(nil, nil),
		"the zero Limiter": new(headgate.Limiter),
	} {
		for name, call := range nonWaitingCalls(l) {
			if err := call(t.Context()); !errors.Is(err, headgate.ErrInvalid) ||
				!strings.Contains(err.Error(), "limiter: has no store") {
				t.Errorf("%s of %s: %v, want ErrInvalid that says so", name, constructor, err)
			}
		}
	}
}
