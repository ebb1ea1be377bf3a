// Package lograte keeps a log short while the same problem occurs many times a second: it writes one line a second for
// each class of records, with a count.
package lograte

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// interval is the time after which a class may write a record again.
const interval = time.Second

// maxClasses is how many classes are distinguished at a time; further classes become one, "other".
const maxClasses = 100

// The keys of the attributes that a Handler reads.
const (
	Class = "class" // part of the class of a record, beside its level and message
	Count = "count" // an integer: how many times it has happened; absent: once
)

// Handler passes records on to another handler, but fewer records of level Warn and above. The first record of a class
// is passed on at once. Of the records that follow within a second, only the last is passed on, when the second is
// over, with an attribute "count" that says how many there were, if more than one. This repeats each second, until a
// second passes without a record.
//
// A class is a level, a message up to its first digit, and an attribute "class". A Handler is safe for concurrent use.
type Handler struct {
	inner slog.Handler
	class string // attribute "class" of the logger
	state *state
}

type state struct {
	mu      sync.Mutex
	closed  bool                    // guarded by mu
	classes map[string]*recordClass // guarded by mu; those with records in the last second
}

// recordClass is a class of records, with the record that was not passed on yet.
type recordClass struct {
	timer      *time.Timer
	count      int64        // how many records there were since the last line
	lastRecord slog.Record  // valid if count is above 0
	inner      slog.Handler // of the last record
}

// New returns a Handler in front of another handler. It must be closed.
func New(inner slog.Handler) *Handler {
	return &Handler{inner: inner, state: &state{classes: map[string]*recordClass{}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.inner.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derived := *h
	derived.inner = h.inner.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key == Class {
			derived.class = a.Value.String()
		}
	}
	return &derived
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	derived := *h
	derived.inner = h.inner.WithGroup(name)
	return &derived
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
	if h.state.keep(r.Level.String()+" "+message+" "+class, r, count, h.inner) {
		return nil
	}
	return h.inner.Handle(ctx, withCount(r, count))
}

// keep keeps a record for a later line. It returns false if the record is to be written now.
func (s *state) keep(class string, r slog.Record, count int64, inner slog.Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.classes[class] == nil && len(s.classes) >= maxClasses {
		class = "other"
	}
	c := s.classes[class]
	if c == nil {
		c = &recordClass{}
		c.timer = time.AfterFunc(interval, func() { s.tick(class, c) })
		s.classes[class] = c
		return false
	}
	c.count, c.lastRecord, c.inner = c.count+count, r.Clone(), inner
	return true
}

// tick ends an interval of a class: it writes the kept record, or forgets a class that has none. It writes under the
// lock, so that Close waits for it.
func (s *state) tick(class string, c *recordClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed: // Close has written the record
	case c.count == 0:
		delete(s.classes, class)
	default:
		c.write()
		c.count = 0
		c.timer.Reset(interval)
	}
}

// write passes the last record on, if there is one.
func (c *recordClass) write() {
	if c.count > 0 {
		_ = c.inner.Handle(context.Background(), withCount(c.lastRecord, c.count)) // errors would go to this log
	}
}

// withCount returns r with another count, in an attribute if it is above 1.
func withCount(r slog.Record, count int64) slog.Record {
	record := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != Count {
			record.AddAttrs(a)
		}
		return true
	})
	if count > 1 {
		record.AddAttrs(slog.Int64(Count, count))
	}
	return record
}

// Close passes on the records that were kept. Later records are passed on at once.
func (h *Handler) Close() {
	h.state.mu.Lock()
	defer h.state.mu.Unlock()
	for _, c := range h.state.classes {
		c.timer.Stop()
		c.write()
	}
	h.state.closed, h.state.classes = true, nil
}
