package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// UsedMode says what becomes of what a key has used of a limit when that limit is changed.
type UsedMode int

const (
	// KeepUsed leaves it as it is: a key that has used 40 has used 40. The store converts it at the next
	// decision, as "Changing a limit" of docs/algorithms.md says. It is the zero value, and no key is read.
	KeepUsed UsedMode = iota
	// ScaleUsed keeps the fraction: used becomes used times the new capacity divided by the old one, rounded up
	// to a whole credit. Blocks and ids of requests stay.
	ScaleUsed
	// ResetUsed forgets all about the keys, as Limiter.Reset does: what is used, blocks and ids of requests.
	ResetUsed
)

var usedModes = [...]string{KeepUsed: "keep", ScaleUsed: "scale", ResetUsed: "reset"}

// String returns keep, scale or reset.
func (m UsedMode) String() string {
	if m < 0 || int(m) >= len(usedModes) {
		return fmt.Sprintf("UsedMode(%d)", int(m))
	}
	return usedModes[m]
}

// ParseUsedMode reads what String returns. The error is headgate.ErrInvalid.
func ParseUsedMode(text string) (UsedMode, error) {
	for mode, name := range usedModes {
		if name == text {
			return UsedMode(mode), nil
		}
	}
	return KeepUsed, headgate.Invalid("used", "%.100q is not known: write keep, scale or reset", text)
}

// Used says what becomes of what keys have used when the limit that holds for them changes. It is a part of By,
// so that each change takes it: Set, Apply, Rollback, Override, RemoveOverride, Assign, Unassign, SetPlans and
// RemovePlan. The zero Used keeps all as it is.
//
// A change that scales or resets does three things. It reads the keys that the store has of the limits that the
// change concerns, and what each has used: this takes about 150 bytes of memory for each key. It writes the
// version. It waits until every process decides by the new version, and then works on the keys for which another
// limit holds than before. A key that came after the first step is not touched.
//
// What a key is charged between the first step and the last was charged beside what is scaled, and counts in full.
// A key that was charged in that time, and has not used more than the new limit allows, is not scaled down: to do
// so could let more pass than the new limit allows. For a key whose old or new limit is 0 or unlimited
// there is no fraction, so that it keeps what it has used.
//
// A limit of concurrency cannot be changed so: the error is headgate.ErrInvalid, and nothing is changed. Where a plan
// has one, keys that are given the plan keep their leases. A store that cannot list its keys fails before anything is
// changed, too: headgate.ErrUnsupported, and store.ErrSetup of a memory store without Names.
type Used struct {
	Mode UsedMode
	// Felt is how long to wait until every process decides by the new version. Zero: two seconds, or twice the
	// Every of this Catalog's Config if that is more. Set it where other processes have a longer Every.
	Felt time.Duration
	// Progress hears how far the work is, from the goroutine that makes the change. Nil: nobody does.
	Progress func(UsedProgress)
}

// UsedProgress says how far a change is that scales or resets what keys have used.
type UsedProgress struct {
	Phase UsedPhase
	Done  int // keys that were read, or worked on
	Keys  int // how many there are; 0 while that is not known
}

// UsedPhase is a step of the work.
type UsedPhase string

// The steps, in their order.
const (
	UsedReading UsedPhase = "reading keys"
	UsedWaiting UsedPhase = "waiting until every server has the change"
	UsedWorking UsedPhase = "changing what is used"
)

// UnfinishedError is the error of a change that is written, and of which some keys were not worked on: the context
// ended, or the store failed. Those keys keep what they have used. What was done is done once: ContinueUsed goes on.
type UnfinishedError struct {
	Mode    UsedMode
	Version int64 // of the change; 0: there was none
	Done    int   // keys that were worked on, or needed nothing
	Keys    int   // of so many
	Err     error // why; a context error if the context ended
}

// Error says how far the work is, and why it ended.
func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("used: %s: %d of %d keys are done, the others keep what they have used: %v",
		e.Mode, e.Done, e.Keys, e.Err)
}

// Unwrap returns the reason.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// reason is the reason for the history, with what becomes of what is used.
func (b *By) reason() string {
	switch {
	case b.Used.Mode == KeepUsed:
		return b.Reason
	case b.Reason == "":
		return "used: " + b.Used.Mode.String()
	}
	return b.Reason + "; used: " + b.Used.Mode.String()
}

func (u *Used) tell(phase UsedPhase, done, keys int) {
	if u.Progress != nil {
		u.Progress(UsedProgress{phase, done, keys})
	}
}

// finish does what a change says of what is used, once its version is written.
func (w *usedWork) finish(ctx context.Context, version int64) error {
	if w == nil {
		return nil
	}
	done, err := 0, w.felt(ctx, version)
	if err == nil {
		done, err = w.all(ctx)
	}
	if err != nil {
		return &UnfinishedError{w.used.Mode, version, done, len(w.keys), err}
	}
	return nil
}

// felt waits until every process has a version: one that lags would decide by the old limit after its
// keys were worked on.
func (w *usedWork) felt(ctx context.Context, version int64) error {
	if len(w.keys) == 0 {
		return nil
	}
	wait := w.used.Felt
	if wait <= 0 {
		wait = 2 * max(DefaultEvery, w.c.every)
	}
	w.used.tell(UsedWaiting, 0, len(w.keys))
	if sched.Wait(wait, ctx.Done(), nil, nil) != sched.TimeOut {
		return ctx.Err()
	}
	if err := w.c.Refresh(ctx); err != nil {
		return err
	}
	if now, _ := w.c.Version(); now < version {
		return fmt.Errorf("%w: the catalogue has version %d, and had %d", store.ErrUnavailable, now, version)
	}
	return nil
}

// ContinueUsed scales, or resets, what keys have used of a limit, without a change of it.
//
// Reset forgets all keys of the limit, and may be repeated. Scale goes on with the last change of the limit where
// that was interrupted: it scales the keys that were certainly not charged since that change, and those that
// have used more than the new limit allows. So a key that was scaled is not scaled again. All other keys keep what
// they have used, as do keys with a plan or an override. Of a window that is as long as its limit's period it
// is not known when a key was charged in it: there, scale goes on with keys above the new limit alone.
//
// It returns how many keys were worked on, or needed nothing. Errors are headgate.ErrUnknownLimit, and
// headgate.ErrInvalid for a limit of concurrency, for KeepUsed, and to scale a limit that was not changed.
func (c *Catalog) ContinueUsed(ctx context.Context, name string, used Used) (keys int, err error) {
	if err := c.Refresh(ctx); err != nil {
		return 0, err
	}
	now := c.now.Load()
	base, err := now.find(name)
	if err != nil {
		return 0, err
	}
	if base.Concurrency() {
		return 0, errHeld(name)
	}
	w := &usedWork{c: c, used: used}
	switch used.Mode {
	case ResetUsed:
		w.every = true
	case ScaleUsed:
		if w.from, w.since, err = c.changedFrom(ctx, name); err != nil {
			return 0, err
		}
	default:
		return 0, headgate.Invalid("used", "%s: write scale or reset", used.Mode)
	}
	if err := w.read(ctx, span{limit: name}); err != nil {
		return 0, err
	}
	keys, err = w.all(ctx)
	if err != nil {
		return keys, &UnfinishedError{used.Mode, 0, keys, len(w.keys), err}
	}
	return keys, nil
}

// changedFrom returns what a limit was before it was changed last, and when that was.
func (c *Catalog) changedFrom(ctx context.Context, name string) (from headgate.Limit, since int64, err error) {
	list, err := c.History(ctx, name, 1<<30)
	if err != nil {
		return from, 0, err
	}
	for _, v := range list {
		for _, change := range v.Changes {
			if change.After.Kind != store.KindLimit || change.After.Name != name ||
				change.Before.Text == change.After.Text {
				continue
			}
			if change.Before.Removed {
				return from, 0, headgate.Invalid("used", "%s was defined by version %d, and not changed since", name,
					v.Number)
			}
			d, err := definition(&change.Before)
			return d.Limit, v.At, err
		}
	}
	return from, 0, headgate.Invalid("used", "no change of %s is kept: nothing can be scaled", name)
}

func errHeld(name string) error {
	return headgate.Invalid("used",
		"%s is a limit of concurrency: what is held cannot be scaled or reset; leave it out", name)
}
