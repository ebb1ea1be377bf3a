package redis

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store"
)

// rooms is what is known of how many keys limits have: the hash of room.lua. All times
// are the server's, in microseconds.
type rooms struct {
	max       int64 // of limits that have none of their own; 0: none
	unbounded bool  // since somebody wants none
	limits    map[string]*limitRoom
	now       int64 // when it was read
	took, at  int64 // how long the last count took, and when it ended
}

// limitRoom is how many keys a limit has.
type limitRoom struct {
	own        int64 // its own maximum; 0: that of all
	made       int64 // cells that were made so far, from any time on
	keys       int64 // at the last count
	before     int64 // made when half of that was over
	at         int64 // when that ended
	generation int64 // of the cell that keys share; 0: none do
	last       int64 // generation, or of the last one before
}

// most returns how many keys a limit may have; 0: any number.
func (r *rooms) most(l *limitRoom) int64 { return cmp.Or(l.own, r.max) }

// atMost returns how many keys a limit has if none has gone since the last count.
func (l *limitRoom) atMost() int64 { return l.keys + l.made - l.before }

// readRooms reads the hash. One that is not there says nothing of any limit.
func (s *Store) readRooms(ctx context.Context) (*rooms, error) {
	answers := s.client.DoMulti(ctx, s.client.B().Hgetall().Key(s.roomKey()).Build(), s.client.B().Time().Build(),
		s.client.B().Exists().Key(s.cfg.Prefix+unbounded).Build())
	fields, err := answers[0].AsStrMap()
	if err != nil {
		return nil, asking("read how many keys limits have", err)
	}
	clock, err := answers[1].AsIntSlice()
	if err != nil || len(clock) != 2 {
		return nil, asking("read the clock", cmp.Or(err, errAnswer))
	}
	none, err := answers[2].AsBool()
	if err != nil {
		return nil, asking("read how many keys limits may have", err)
	}
	r := &rooms{now: clock[0]*1_000_000 + clock[1], unbounded: none, limits: map[string]*limitRoom{}}
	for field, value := range fields {
		if err := r.read(field, value); err != nil {
			return nil, fmt.Errorf("redis: %w: %s: field %q is %q: %w", store.ErrSetup, s.roomKey(), field, value, err)
		}
	}
	return r, nil
}

// read reads one field of the hash.
func (r *rooms) read(field, value string) error {
	kind, name, ofLimit := strings.Cut(field, ":")
	var to []*int64
	if !ofLimit {
		var generation int64
		to = map[string][]*int64{"max": {&r.max}, "took": {&r.took, &r.at}, "last": {&generation}}[field]
	} else {
		l := r.limits[name]
		if l == nil {
			l = &limitRoom{}
			r.limits[name] = l
		}
		to = map[string][]*int64{
			"g": {&l.generation}, "x": {&l.own}, "n": {&l.made},
			"k": {&l.keys, &l.before, &l.at, &l.last},
		}[kind]
	}
	numbers := strings.Fields(value)
	if to == nil {
		return nil // of a newer binary
	}
	if len(numbers) != len(to) {
		return fmt.Errorf("%d numbers, want %d", len(numbers), len(to))
	}
	for i := range to {
		var err error
		if *to[i], err = strconv.ParseInt(numbers[i], 10, 64); err != nil {
			return err
		}
	}
	return nil
}

// declare writes the maximum of the configuration into the store, so that it holds for
// all processes, or that there is none.
func (s *Store) declare(ctx context.Context) error {
	if s.cfg.MaxKeys == 0 {
		return nil
	}
	key, none, most, b := s.roomKey(), s.cfg.Prefix+unbounded, max(0, int64(s.cfg.MaxKeys)), s.client.B
	commands := []rueidis.Completed{b().Hget().Key(key).Field("max").Build()}
	if most > 0 {
		commands = append(commands, b().Del().Key(none).Build(),
			b().Hset().Key(key).FieldValue().FieldValue("max", strconv.FormatInt(most, 10)).Build())
	} else {
		commands = append(commands, b().Set().Key(none).Value("1").Build(), b().Hdel().Key(key).Field("max").Build())
	}
	answers := s.client.DoMulti(ctx, commands...)
	for _, res := range answers[1:] {
		if err := res.Error(); err != nil {
			return asking("set how many keys a limit may have", err)
		}
	}
	if was, err := answers[0].AsInt64(); err == nil && was != most {
		s.log.Warn("the number of keys that a limit may have was changed, for all processes", "before", was,
			"now", most)
	}
	return nil
}

// declareAgain does that for a server that has lost its data.
func (s *Store) declareAgain(ctx context.Context, r *rooms) error {
	if s.cfg.MaxKeys <= 0 || r.max > 0 || r.unbounded {
		return nil
	}
	r.max = int64(s.cfg.MaxKeys)
	return s.declare(ctx)
}

// Fullness implements store.KeyCounter. Limits that have less than a hundredth of
// their keys may be left out. It is one round trip.
func (s *Store) Fullness(ctx context.Context) ([]store.Room, error) {
	if err := s.ready(ctx); err != nil || s.cluster {
		return nil, err
	}
	r, err := s.readRooms(ctx)
	if err != nil {
		return nil, err
	}
	shared := s.counter.shared.All()
	for name := range shared {
		if r.limits[name] == nil {
			r.limits[name] = &limitRoom{}
		}
	}
	var list []store.Room
	for _, name := range slices.Sorted(maps.Keys(r.limits)) {
		l := r.limits[name]
		room := store.Room{
			Limit: name, Keys: l.keys, CountedAt: cmp.Or(l.at, r.at, r.now), Max: r.most(l),
			Sharing: l.generation > 0, Generation: cmp.Or(l.generation, l.last), Shared: shared[name],
		}
		if room.Sharing {
			room.Since = l.generation // it is the time
		}
		list = append(list, room)
	}
	return list, nil
}
