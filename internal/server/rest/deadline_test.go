package rest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type valueKey struct{}

// TestDeadlinedIsAsContextWithTimeout does the same to both, step by step, and compares
// what they answer. Each way asks for other things before, because of which there is a
// timer or none.
func TestDeadlinedIsAsContextWithTimeout(t *testing.T) {
	t.Parallel()
	asked := map[string]func(context.Context){
		"nothing": func(context.Context) {},
		"Err":     func(ctx context.Context) { _ = ctx.Err() },
		"Done":    func(ctx context.Context) { _ = ctx.Done() },
		"Value":   func(ctx context.Context) { _ = ctx.Value(valueKey{}) },
	}
	ended := map[string]func(parent, own, late context.CancelFunc){
		"not":           func(_, _, _ context.CancelFunc) {},
		"by the parent": func(parent, _, _ context.CancelFunc) { parent() },
		"by itself":     func(_, own, _ context.CancelFunc) { own() },
		"in time":       func(_, _, late context.CancelFunc) { late() },
		"too late":      func(_, own, late context.CancelFunc) { late(); own() },
	}
	for before, ask := range asked {
		for how, end := range ended {
			t.Run(before+" asked, ended "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					parent, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "v"))
					defer cancel()
					want, cancelWant := context.WithTimeout(parent, time.Minute)
					got := withTimeout(parent, time.Minute)
					ask(got)
					wait := func() { time.Sleep(time.Minute); synctest.Wait() }
					end(cancel, func() { cancelWant(); got.stop() }, wait)
					sameContext(t, got, want)
					got.stop()
					cancelWant()
					sameContext(t, got, want)
				})
			})
		}
	}
}

func sameContext(t *testing.T, got, want context.Context) {
	t.Helper()
	if got, want := got.Err(), want.Err(); !errors.Is(got, want) || !errors.Is(want, got) {
		t.Errorf("Err: %v, want %v", got, want)
	}
	if got, want := context.Cause(got), context.Cause(want); !errors.Is(got, want) || !errors.Is(want, got) {
		t.Errorf("Cause: %v, want %v", got, want)
	}
	if got, want := done(got), done(want); got != want {
		t.Errorf("Done: %v, want %v", got, want)
	}
	a, _ := got.Deadline()
	if b, _ := want.Deadline(); !a.Equal(b) {
		t.Errorf("Deadline: %v, want %v", a, b)
	}
	if got.Value(valueKey{}) != "v" {
		t.Errorf("Value: %v", got.Value(valueKey{}))
	}
	derived, cancel := context.WithCancel(got)
	defer cancel()
	if done(derived) != done(want) {
		t.Errorf("Done of one that is derived: %v, want %v", done(derived), done(want))
	}
	if got, want := got.Err(), want.Err(); !errors.Is(got, want) || !errors.Is(want, got) {
		t.Errorf("Err at last: %v, want %v", got, want)
	}
}

func done(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// TestDeadlinedHasTheEarlierDeadline looks at a parent that ends before.
func TestDeadlinedHasTheEarlierDeadline(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ctx := withTimeout(parent, time.Minute)
	defer ctx.stop()
	want, _ := parent.Deadline()
	if got, ok := ctx.Deadline(); !ok || !got.Equal(want) {
		t.Errorf("got %v, %v, want %v", got, ok, want)
	}
}

// TestWhatIsDerivedEndsWithDeadlined waits for a context below it, and counts on synctest to
// find a goroutine that is left.
func TestWhatIsDerivedEndsWithDeadlined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := withTimeout(t.Context(), time.Minute)
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		<-derived.Done()
		if err := derived.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		ctx.stop()
	})
}
