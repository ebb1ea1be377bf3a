// Package whatif answers what a limit would have done to a log that was sent here, or to what another limit has
// recorded. A log is read once and kept for a while, so that one limit after the other can be tried. The figures are
// those of package replay. Nothing is charged.
package whatif

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/server/api"
)

// The bounds that a zero Config has.
const (
	DefaultMaxLogs   = 16
	DefaultMaxMemory = 64 << 20
	DefaultMaxUpload = 64 << 20
	DefaultLife      = 30 * time.Minute
	// unpackedTimes is how many times as large as MaxUpload a log may be when it is unpacked.
	unpackedTimes = 4
)

// Config adjusts Logs. A nil Config, and every zero field, is fine.
type Config struct {
	Names catalog.Names // finds limits by their names; nil: limits are notations
	// Limiter returns what limits have recorded. Nil: nothing.
	Limiter *headgate.Limiter

	MaxLogs   int           // that are kept
	MaxMemory int64         // about what all of them take, in bytes; a single one may take half of it
	MaxUpload int64         // bytes of a log as it is sent; unpacked it may be four times as large
	Life      time.Duration // of a log after it was used last
	Now       func() time.Time
}

// Logs keeps logs. Create it with [New]. It is safe for concurrent use.
type Logs struct {
	cfg     Config
	reading chan struct{} // as many as may read a log at a time
	asking  chan struct{} // has room for as many questions as may run at a time
	mu      sync.Mutex
	kept    map[string]*kept // by id; guarded by mu
	waiting map[string]int   // requests that wait to be read, by the caller; guarded by mu
	waits   int              // of all of them; guarded by mu
	timer   *time.Timer      // drops what is over; guarded by mu
}

// kept is a log that was read.
type kept struct {
	about    api.WhatIfLog
	owner    string // the caller who sent it
	requests *replay.Requests
	memory   int64
	used     time.Time
}

// atOnce is how many logs may be read at a time, and how many questions are answered.
const atOnce = 2

// New returns logs, of which none is kept yet.
func New(c *Config) *Logs {
	l := &Logs{
		kept: map[string]*kept{}, waiting: map[string]int{},
		reading: make(chan struct{}, atOnce), asking: make(chan struct{}, atOnce), cfg: *cmp.Or(c, &Config{}),
	}
	l.cfg.MaxLogs = cmp.Or(l.cfg.MaxLogs, DefaultMaxLogs)
	l.cfg.MaxMemory = cmp.Or(l.cfg.MaxMemory, DefaultMaxMemory)
	l.cfg.MaxUpload = cmp.Or(l.cfg.MaxUpload, DefaultMaxUpload)
	l.cfg.Life = cmp.Or(l.cfg.Life, DefaultLife)
	if l.cfg.Now == nil {
		l.cfg.Now = time.Now
	}
	return l
}

// Close forgets all logs.
func (l *Logs) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	clear(l.kept)
}

// question says how a log is to be read.
type question struct {
	key  string
	name string
	cfg  replay.Config
}

// read reads a log of a caller and keeps it. The same log that is read in the same way is the same.
func (l *Logs) read(ctx context.Context, owner string, q *question, from io.Reader) (*api.WhatIfLog, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %q %q %v %v %q %q %d %t %q %q ", owner, q.key, q.name, q.cfg.Format, q.cfg.Where,
		q.cfg.Since, q.cfg.Until, q.cfg.Cost, q.cfg.Settle, q.cfg.Year, q.cfg.Attempts, q.cfg.Time, q.cfg.TimeFormat)
	q.cfg.Stdin, q.cfg.Name = io.TeeReader(from, hash), q.name
	q.cfg.MaxBytes, q.cfg.MaxMemory = unpackedTimes*l.cfg.MaxUpload, l.cfg.MaxMemory/2
	requests, err := replay.Read(ctx, q.key, []string{"-"}, &q.cfg)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(hash, from); err != nil { // behind the end of what is packed
		return nil, err
	}
	k := &kept{owner: owner, requests: requests, memory: requests.Memory(), about: about(requests.Log())}
	k.about.ID = hex.EncodeToString(hash.Sum(nil)[:12])
	return l.keep(k), nil
}

// about describes a log that was read.
func about(r replay.Report) api.WhatIfLog {
	a := api.WhatIfLog{
		Field: r.Field, Lines: r.Lines, Requests: r.Requests, Keys: int(r.Keys), Unparsed: r.Unparsed,
		Skipped: r.Skipped, Filtered: r.Filtered, First: r.First.UnixMicro(), Last: r.Last.UnixMicro(), Notes: r.Notes,
	}
	for _, one := range r.Logs {
		a.Name, a.Format = one.Name, string(one.Format)
	}
	for _, why := range r.Reasons {
		if why.Unparsed {
			a.Problems = append(a.Problems, accesslog.Plural(why.Lines, "line")+", first "+why.First.String())
		}
	}
	return a
}

// keep keeps a log, in the place of those that were used longest ago if there is no room.
func (l *Logs) keep(k *kept) *api.WhatIfLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	l.sweep(now)
	delete(l.kept, k.about.ID)
	for memory := l.memory(); len(l.kept) >= l.cfg.MaxLogs || memory+k.memory > l.cfg.MaxMemory; memory = l.memory() {
		oldest := slices.MinFunc(slices.Collect(maps.Values(l.kept)),
			func(a, b *kept) int { return a.used.Compare(b.used) })
		delete(l.kept, oldest.about.ID)
	}
	k.used = now
	l.kept[k.about.ID] = k
	if l.timer == nil {
		l.timer = time.AfterFunc(l.cfg.Life, l.expire)
	}
	a := k.about
	a.KeptUntil = now.Add(l.cfg.Life).UnixMicro()
	return &a
}

// memory returns what all logs take. The caller holds mu.
func (l *Logs) memory() (n int64) {
	for _, k := range l.kept {
		n += k.memory
	}
	return n
}

// sweep drops what is over. The caller holds mu.
func (l *Logs) sweep(now time.Time) {
	maps.DeleteFunc(l.kept, func(_ string, k *kept) bool { return now.Sub(k.used) >= l.cfg.Life })
}

// expire sweeps now and then.
func (l *Logs) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(l.cfg.Now())
	if l.timer = nil; len(l.kept) > 0 {
		l.timer = time.AfterFunc(l.cfg.Life, l.expire)
	}
}

// find returns a log of a caller.
func (l *Logs) find(owner, id string) (*replay.Requests, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	l.sweep(now)
	k, ok := l.kept[id]
	if !ok || k.owner != owner {
		return nil, errGone
	}
	k.used = now
	return k.requests, nil
}
