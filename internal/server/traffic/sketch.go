package traffic

import (
	"container/heap"
	"math"
	"strings"

	"github.com/headgate/headgate/law"
)

const (
	// Parts is how many parts the last Seconds have for one key, and Part how long one is, in seconds.
	Parts, Part = 30, Seconds / Parts

	halfLife = 60 // seconds in which a weight halves
	// maxScale is the power of two by which weights are divided when that of a new charge has grown to it.
	maxScale = 64
)

// entry is a key that is kept.
type entry struct {
	cell   law.Cell
	weight float64 // at the scale of the sketch
	place  int     // in the heap
	part   int32   // the newest of recent
	recent [Parts]float32
}

// sketch keeps the keys of the greatest weights. It has a lock outside.
type sketch struct {
	room    func(n int) bool // takes room for one more entry than n
	entries []*entry         // a heap: the smallest weight first
	index   map[law.Cell]*entry

	since int64   // seconds: the weight of a charge is 2^((now-since)/halfLife)
	now   int64   // seconds, for which scale holds
	scale float64 // the weight of a cost of 1
}

func newSketch(now int64, room func(n int) bool) *sketch {
	at := now / 1e9
	return &sketch{room: room, index: map[law.Cell]*entry{}, since: at, now: at, scale: 1}
}

// add adds to the weight of a key.
func (s *sketch) add(now int64, c law.Cell, n float64) {
	at := now / 1e9
	if at > s.now {
		s.advance(at)
	}
	part := int32(at / Part)
	e := s.index[c]
	if e == nil {
		e = s.enter(c)
		e.part = part
	}
	e.weight += n * s.scale
	e.shift(part)
	e.recent[e.part%Parts] += float32(n)
	heap.Fix(s, e.place)
}

// advance goes on to another second.
func (s *sketch) advance(at int64) {
	s.now = at
	if steps := (s.now - s.since) / (maxScale * halfLife); steps > 0 {
		s.since += steps * maxScale * halfLife
		for _, e := range s.entries {
			e.weight = math.Ldexp(e.weight, int(-maxScale*min(steps, 100)))
		}
	}
	s.scale = math.Exp2(float64(s.now-s.since) / halfLife)
}

// enter makes an entry for a key, or takes that of the least weight.
func (s *sketch) enter(c law.Cell) *entry {
	c.Key = strings.Clone(c.Key) // which may be a part of a long text
	if n := len(s.entries); s.room(n) {
		e := &entry{cell: c, place: n}
		s.index[c] = e
		heap.Push(s, e)
		return e
	}
	e := s.entries[0]
	delete(s.index, e.cell)
	s.index[c] = e
	*e = entry{cell: c, weight: e.weight, place: e.place}
	return e
}

// shift empties the parts between the newest and another one, which is newer.
func (e *entry) shift(part int32) {
	for n := 0; e.part < part && n < Parts; n++ {
		e.part++
		e.recent[e.part%Parts] = 0
	}
	e.part = max(e.part, part)
}

// total returns the sum of the parts that are not over.
func (e *entry) total(part int32) (sum float64) {
	for p := max(part-Parts, e.part-Parts) + 1; p <= e.part; p++ {
		sum += float64(e.recent[p%Parts])
	}
	return sum
}

// Len implements heap.Interface.
func (s *sketch) Len() int { return len(s.entries) }

// Less implements heap.Interface.
func (s *sketch) Less(a, b int) bool { return s.entries[a].weight < s.entries[b].weight }

// Swap implements heap.Interface.
func (s *sketch) Swap(a, b int) {
	s.entries[a], s.entries[b] = s.entries[b], s.entries[a]
	s.entries[a].place, s.entries[b].place = a, b
}

// Push implements heap.Interface.
func (s *sketch) Push(e any) { s.entries = append(s.entries, e.(*entry)) }

// Pop implements heap.Interface. Nothing is taken out.
func (s *sketch) Pop() any { panic("traffic: a key was taken out") }
