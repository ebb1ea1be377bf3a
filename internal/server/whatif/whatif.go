// Package whatif replays limits against a log that a client sent, or against the history of another limit. A log is
// read once and kept for a while, so that one limit after the other can be tried. Package replay computes the figures.
// Nothing is charged.
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

// The defaults of Config.
const (
	DefaultMaxLogs   = 16
	DefaultMaxMemory = 64 << 20
	DefaultMaxUpload = 64 << 20
	DefaultLife      = 30 * time.Minute
	// unpackedTimes is how many times as large as MaxUpload an unpacked log may be.
	unpackedTimes = 4
)

// Config adjusts Logs. A nil Config, and every zero field, is fine.
type Config struct {
	Names catalog.Names // finds limits by name; nil: only notations are accepted
	// Limiter reads the histories of limits. Nil: histories cannot be replayed.
	Limiter *headgate.Limiter

	MaxLogs   int              // logs that are kept
	MaxMemory int64            // bytes of all logs, about; a single log may take half of it
	MaxUpload int64            // bytes of a log as it is sent; unpacked it may be four times as large
	Life      time.Duration    // how long a log is kept after its last use
	Now       func() time.Time // nil: time.Now
}

// Logs keeps logs. Create it with [New]. It is safe for concurrent use.
type Logs struct {
	cfg        Config
	reading    chan struct{} // turns to read a log
	replaying  chan struct{} // turns to replay a log
	mu         sync.Mutex
	logs       map[string]*keptLog // by id; guarded by mu
	waiting    map[string]int      // requests that wait for a turn to read, by caller; guarded by mu
	allWaiting int                 // sum of waiting; guarded by mu
	timer      *time.Timer         // calls expire while logs are kept; guarded by mu
}

type keptLog struct {
	about    api.WhatIfLog
	owner    string // the caller who sent it
	requests *replay.Requests
	memory   int64
	lastUsed time.Time
}

// turns is how many logs may be read at a time, and how many may be replayed.
const turns = 2

// New returns an empty Logs.
func New(c *Config) *Logs {
	l := &Logs{
		logs: map[string]*keptLog{}, waiting: map[string]int{},
		reading: make(chan struct{}, turns), replaying: make(chan struct{}, turns), cfg: *cmp.Or(c, &Config{}),
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

// Close drops all logs, and stops the timer.
func (l *Logs) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	clear(l.logs)
}

type logQuery struct {
	key  string // fields that make a key
	name string // of the log
	cfg  replay.Config
}

// read reads a log of a caller, keeps it, and describes it. The same log, read in the same way, has the same id.
func (l *Logs) read(ctx context.Context, owner string, q *logQuery, from io.Reader) (*api.WhatIfLog, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %q %q %v %v %q %q %d %t %q %q ", owner, q.key, q.name, q.cfg.Format, q.cfg.Where,
		q.cfg.Since, q.cfg.Until, q.cfg.Cost, q.cfg.Settle, q.cfg.Year, q.cfg.Attempts, q.cfg.Time, q.cfg.TimeFormat)
	q.cfg.Stdin, q.cfg.Name = io.TeeReader(from, hash), q.name
	q.cfg.MaxBytes, q.cfg.MaxMemory = unpackedTimes*l.cfg.MaxUpload, l.cfg.MaxMemory/2
	requests, err := replay.Read(ctx, q.key, []string{"-"}, &q.cfg)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(hash, from); err != nil { // bytes after the packed data
		return nil, err
	}
	k := &keptLog{owner: owner, requests: requests, memory: requests.Memory(), about: about(requests.LogReport())}
	k.about.ID = hex.EncodeToString(hash.Sum(nil)[:12])
	return l.keep(k), nil
}

func about(r replay.Report) api.WhatIfLog {
	a := api.WhatIfLog{
		Field: r.Field, Lines: r.Lines, Requests: r.Requests, Keys: int(r.Keys), Unparsed: r.Unparsed,
		Skipped: r.Skipped, Filtered: r.Filtered, First: r.First.UnixMicro(), Last: r.Last.UnixMicro(), Notes: r.Notes,
	}
	for _, log := range r.Logs {
		a.Name, a.Format = log.Name, string(log.Format)
	}
	for _, why := range r.Reasons {
		if why.Unparsed {
			a.Problems = append(a.Problems, accesslog.Plural(why.Lines, "line")+", first "+why.First.String())
		}
	}
	return a
}

// keep keeps a log, and describes it. If there is no room, it drops the logs that were used longest ago.
func (l *Logs) keep(k *keptLog) *api.WhatIfLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	l.sweep(now)
	delete(l.logs, k.about.ID)
	for memory := l.memory(); len(l.logs) >= l.cfg.MaxLogs || memory+k.memory > l.cfg.MaxMemory; memory = l.memory() {
		oldest := slices.MinFunc(slices.Collect(maps.Values(l.logs)),
			func(a, b *keptLog) int { return a.lastUsed.Compare(b.lastUsed) })
		delete(l.logs, oldest.about.ID)
	}
	k.lastUsed = now
	l.logs[k.about.ID] = k
	if l.timer == nil {
		l.timer = time.AfterFunc(l.cfg.Life, l.expire)
	}
	a := k.about
	a.KeptUntil = now.Add(l.cfg.Life).UnixMicro()
	return &a
}

// memory returns the bytes of all logs. The caller holds mu.
func (l *Logs) memory() (n int64) {
	for _, k := range l.logs {
		n += k.memory
	}
	return n
}

// sweep drops the logs whose life is over. The caller holds mu.
func (l *Logs) sweep(now time.Time) {
	maps.DeleteFunc(l.logs, func(_ string, k *keptLog) bool { return now.Sub(k.lastUsed) >= l.cfg.Life })
}

// expire sweeps, and schedules the next sweep while logs are kept.
func (l *Logs) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(l.cfg.Now())
	if l.timer = nil; len(l.logs) > 0 {
		l.timer = time.AfterFunc(l.cfg.Life, l.expire)
	}
}

// find returns the requests of a caller's log, and restarts its lifetime. The error is errGone.
func (l *Logs) find(owner, id string) (*replay.Requests, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	l.sweep(now)
	k, ok := l.logs[id]
	if !ok || k.owner != owner {
		return nil, errGone
	}
	k.lastUsed = now
	return k.requests, nil
}
