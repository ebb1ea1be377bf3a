package traffic

import (
	"container/heap"
	"math"
	"strings"

	"github.com/headgate/headgate/law"
)

const (
	// Parts is the number of parts that a key has for the last Seconds, and PartSeconds the length of a part.
	Parts, PartSeconds = 30, Seconds / Parts

	halfLife = 60 // seconds in which a weight halves
	// maxDoublings is how often scale doubles before all weights are divided by 2^maxDoublings.
	maxDoublings = 64
)

// entry is a key that the sketch keeps.
type entry struct {
	cell   law.Cell
	weight float64 // at the scale of the sketch
	place  int     // index in the heap
	part   int32   // number of the newest part in recent, since 1970
	recent [Parts]float32
}

// sketch keeps the keys with the greatest weights. Callers of its methods hold the lock of the limit.
type sketch struct {
	takeRoom func(n int) bool // reports whether a sketch with n entries may add one, and counts it
	entries  []*entry         // a heap: the smallest weight first
	index    map[law.Cell]*entry

	scaleStart int64   // seconds: the weight of a cost of 1 is 2^((now-scaleStart)/halfLife)
	now        int64   // seconds
	scale      float64 // the weight of a cost of 1 at now
}

// add adds n to the figures of a key, and to its weight what n weighs now.
func (s *sketch) add(nanos int64, c law.Cell, n float64) {
	at := nanos / 1e9
	if at > s.now {
		s.advance(at)
	}
	part := int32(at / PartSeconds)
	e := s.index[c]
	if e == nil {
		e = s.insert(c)
		e.part = part
	}
	e.weight += n * s.scale
	e.shift(part)
	e.recent[e.part%Parts] += float32(n)
	heap.Fix(s, e.place)
}

// advance sets now and scale for another second.
func (s *sketch) advance(at int64) {
	s.now = at
	if steps := (s.now - s.scaleStart) / (maxDoublings * halfLife); steps > 0 {
		s.scaleStart += steps * maxDoublings * halfLife
		for _, e := range s.entries {
			e.weight = math.Ldexp(e.weight, int(-maxDoublings*min(steps, 100))) // 2^-6400 is 0
		}
	}
	s.scale = math.Exp2(float64(s.now-s.scaleStart) / halfLife)
}

// insert adds an entry for a key, or reuses the entry with the least weight, and keeps that weight.
func (s *sketch) insert(c law.Cell) *entry {
	c.Key = strings.Clone(c.Key) // it may be a part of a long text
	if n := len(s.entries); s.takeRoom(n) {
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

// shift clears the parts after the newest one up to part, which becomes the newest if it is later.
func (e *entry) shift(part int32) {
	for n := 0; e.part < part && n < Parts; n++ {
		e.part++
		e.recent[e.part%Parts] = 0
	}
	e.part = max(e.part, part)
}

// total returns the sum of the last Parts parts up to part.
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

// Pop implements heap.Interface. It is never called.
func (s *sketch) Pop() any { panic("traffic: a key was taken out") }
