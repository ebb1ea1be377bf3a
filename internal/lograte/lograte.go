// Package lograte keeps a log short while the same thing goes wrong many times a
// second: one line for each class of trouble and second, with a count.
package lograte

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Of each class, one record in so long is written.
const every = time.Second

// maxClasses is how many classes are distinguished at a time, whatever the messages say.
const maxClasses = 100

// Attributes that a Handler knows.
const (
	Class = "class" // names the class of a record, together with its level and message
	Count = "count" // an integer: how many times it has happened; absent: once
)

// Handler passes records on to another handler, and fewer of those of level Warn and
// above. The first record of a class is passed on at once. Of those that follow within
// a second only the last is, when the second has passed, with an attribute "count" that
// says how many they were; and so on each second, until one passes without any.
//
// A class is a level, a message up to its first digit, and an attribute "class". It is safe for concurrent
// use. Create one with [New].
type Handler struct {
	inner slog.Handler
	class string // out of attributes of the logger
	state *state
}

type state struct {
	mu      sync.Mutex
	closed  bool                    // guarded by mu
	classes map[string]*recordClass // guarded by mu; those with records in the last second
}

// recordClass is a class of records, with those that were not passed on yet.
type recordClass struct {
	timer *time.Timer
	count int64       // how many times it has happened since the last line
	last  slog.Record // if count is above 0
	inner slog.Handler
}

// New returns a Handler in front of another. Close it in the end.
func New(inner slog.Handler) *Handler {
	return &Handler{inner: inner, state: &state{classes: map[string]*recordClass{}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.inner.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.inner = h.inner.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key == Class {
			with.class = a.Value.String()
		}
	}
	return &with
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	with := *h
	with.inner = h.inner.WithGroup(name)
	return &with
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.inner.Handle(ctx, r)
	}
	class, count := h.class, int64(1)
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == Class:
			class = a.Value.String()
		case a.Key == Count && a.Value.Kind() == slog.KindInt64:
			count = a.Value.Int64()
		}
		return true
	})
	message := r.Message
	if i := strings.IndexAny(message, "0123456789"); i >= 0 {
		message = message[:i] // an address, as in what net/http logs
	}
	if h.state.later(r.Level.String()+" "+message+" "+class, r, count, h.inner) {
		return nil
	}
	return h.inner.Handle(ctx, counted(r, count))
}

// later reports whether a record is kept for a later line.
func (s *state) later(class string, r slog.Record, count int64, inner slog.Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.classes[class] == nil && len(s.classes) >= maxClasses {
		class = "other"
	}
	t := s.classes[class]
	if t == nil {
		t = &recordClass{}
		t.timer = time.AfterFunc(every, func() { s.tick(class, t) })
		s.classes[class] = t
		return false
	}
	t.count, t.last, t.inner = t.count+count, r.Clone(), inner
	return true
}

// tick ends a second of a class. It writes under the lock, so that Close returns after it.
func (s *state) tick(class string, t *recordClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed: // Close has written it
	case t.count == 0:
		delete(s.classes, class)
	default:
		t.write()
		t.count = 0
		t.timer.Reset(every)
	}
}

// write passes the last record on, if there is one.
func (c *recordClass) write() {
	if c.count > 0 {
		_ = c.inner.Handle(context.Background(), counted(c.last, c.count)) // the log itself is where errors would go
	}
}

// counted returns a record with another count.
func counted(r slog.Record, count int64) slog.Record {
	with := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != Count {
			with.AddAttrs(a)
		}
		return true
	})
	if count > 1 {
		with.AddAttrs(slog.Int64(Count, count))
	}
	return with
}

// Close passes on what was kept. Later records are passed on one by one.
func (h *Handler) Close() {
	h.state.mu.Lock()
	defer h.state.mu.Unlock()
	for _, t := range h.state.classes {
		t.timer.Stop()
		t.write()
	}
	h.state.closed, h.state.classes = true, nil
}
