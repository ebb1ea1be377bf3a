package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// scheduler lets one goroutine run at a time, in an order that a seed decides. It works
// in a bubble of testing/synctest: when every goroutine waits for another, virtual time
// goes on to the next timer.
//
// A goroutine that wakes another one goes on running; the other one parks at once, and
// is resumed later. So the order in which the runtime wakes several goroutines does not
// matter, since the parked ones are ordered by the numbers of their goroutines. No two
// timers end at the same nanosecond.
type scheduler struct {
	rng   *rand.Rand
	start time.Time // of the simulation, in virtual time

	moved     time.Duration // when virtual time has last gone on
	idleSteps int           // goroutines resumed, and clocks read, since

	mu       sync.Mutex
	ready    []*task // parked, and free to go on; guarded by mu
	live     int     // tasks that have not ended; guarded by mu
	idle     chan struct{}
	cur      *task // runs now
	tasks    int   // started
	instants map[int64]bool
	oldest   int64 // instants before it are forgotten
}

type task struct {
	number int
	of     *process
	gate   chan struct{} // receives when the task may go on
}

// process is one of the computers that the simulation consists of. When it dies, its
// goroutines end at the next place where they would wait.
type process struct {
	name   string
	dead   bool
	killed chan struct{} // closed when it is dead
	ppm    int64         // by how many millionths its clocks are too fast
	wall   time.Duration // by which its clock is ahead of the time that passes for it
}

func newProcess(name string) *process { return &process{name: name, killed: make(chan struct{})} }

func (p *process) kill() {
	if !p.dead {
		p.dead = true
		close(p.killed)
	}
}

// checkProgress panics if a process goes on without an end while no virtual time passes.
func (s *scheduler) checkProgress() {
	if now := s.now(); now > s.moved {
		s.moved, s.idleSteps = now, 0
	} else if s.idleSteps++; s.idleSteps > maxIdleSteps {
		panic(fmt.Sprintf("process %s goes on and on, and no time passes", s.cur.of.name))
	}
}

// maxIdleSteps is how often goroutines are resumed or read their clocks at most while no
// virtual time passes: more are in a loop without an end.
const maxIdleSteps = 1_000_000

func newScheduler(seed uint64) *scheduler {
	return &scheduler{
		rng: rand.New(rand.NewPCG(seed, 0x6865616467617465)), start: time.Now(),
		idle: make(chan struct{}, 1), instants: map[int64]bool{},
	}
}

var _ sched.Simulator = (*scheduler)(nil)

func (s *scheduler) spawn(p *process, f func()) {
	s.tasks++
	t := &task{number: s.tasks, of: p, gate: make(chan struct{})}
	s.mu.Lock()
	s.live++
	s.mu.Unlock()
	go func() {
		defer func() {
			s.mu.Lock()
			s.live--
			s.mu.Unlock()
		}()
		s.awaitTurn(t)
		f()
	}()
	s.park(t)
}

func (s *scheduler) park(t *task) {
	s.mu.Lock()
	s.ready = append(s.ready, t)
	s.mu.Unlock()
	select {
	case s.idle <- struct{}{}:
	default:
	}
}

// awaitTurn waits until the scheduler lets a task go on, and ends it if its process is dead.
func (s *scheduler) awaitTurn(t *task) {
	<-t.gate
	if t.of.dead {
		runtime.Goexit()
	}
}

// run resumes one task after another until none is left.
func (s *scheduler) run() {
	for {
		synctest.Wait()
		s.mu.Lock()
		if s.live == 0 {
			s.mu.Unlock()
			return
		}
		if len(s.ready) == 0 {
			s.mu.Unlock()
			<-s.idle // virtual time passes
			continue
		}
		slices.SortFunc(s.ready, func(a, b *task) int { return a.number - b.number })
		i := s.rng.IntN(len(s.ready))
		t := s.ready[i]
		s.ready = slices.Delete(s.ready, i, i+1)
		s.mu.Unlock()
		s.cur = t
		s.checkProgress()
		t.gate <- struct{}{}
	}
}

// now returns the time since the start of the simulation.
func (s *scheduler) now() time.Duration { return time.Since(s.start) }

// timer returns how long a timer must be set for d of true time, so that no other timer
// ends at the same instant.
func (s *scheduler) timer(d time.Duration) time.Duration {
	now := int64(s.now())
	if now > s.oldest+int64(time.Minute) {
		maps.DeleteFunc(s.instants, func(at int64, _ bool) bool { return at < now })
		s.oldest = now
	}
	at := now + int64(max(d, 1))
	for s.instants[at] {
		at++
	}
	s.instants[at] = true
	return time.Duration(at - now)
}

func (s *scheduler) Go(f func()) { s.spawn(s.cur.of, f) }

func (s *scheduler) Yield() {
	t := s.cur
	s.park(t)
	s.awaitTurn(t)
}

// Wait implements sched.Simulator. Of several channels that are ready it takes any.
func (s *scheduler) Wait(d time.Duration, a, b, c <-chan struct{}) int {
	if s.cur.of.dead {
		runtime.Goexit()
	}
	chans := [...]<-chan struct{}{a, b, c}
	for i, first := 0, s.rng.IntN(len(chans)); i < len(chans); i++ {
		k := (first + i) % len(chans)
		select {
		case <-chans[k]:
			return k
		default:
		}
	}
	if d == 0 {
		return sched.TimeOut
	}
	if d > 0 {
		d = s.Until(d)
	}
	return s.block(d, a, b, c)
}

// block lets others go on until a channel is ready or so much virtual time has passed, or the process of the
// task is dead. A time below 0 never passes.
func (s *scheduler) block(d time.Duration, a, b, c <-chan struct{}) int {
	t, which := s.cur, sched.TimeOut
	var end <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-a:
		which = 0
	case <-b:
		which = 1
	case <-c:
		which = 2
	case <-end:
	case <-t.of.killed:
	}
	s.park(t)
	s.awaitTurn(t)
	return which
}

func (s *scheduler) sleep(d time.Duration) { s.block(s.timer(d), nil, nil, nil) }

// own returns the time of a process that has passed after a true time.
func (p *process) own(d time.Duration) time.Duration { return d + d/1_000_000*time.Duration(p.ppm) }

func (s *scheduler) Now() time.Time {
	s.checkProgress()
	return s.start.Add(s.cur.of.own(s.now()))
}

func (s *scheduler) Wall() time.Time { return s.wallOf(s.cur.of) }

func (s *scheduler) wallOf(p *process) time.Time { return s.start.Add(p.own(s.now()) + p.wall) }

func (s *scheduler) Until(d time.Duration) time.Duration {
	return s.timer(d - d/1_000_000*time.Duration(s.cur.of.ppm))
}

func (s *scheduler) Uint64() uint64 { return s.rng.Uint64() }

// Hash implements sched.Simulator: FNV-1a, and mixed in the end as splitmix64 does. Without
// that, two texts that end in different digits have hashes so alike that the exclusive or of
// the hashes of a limit and of a key, which memory takes, was the same for two cells.
func (s *scheduler) Hash(v any) uint64 {
	sum := fnv.New64a()
	if cell, is := v.(law.Cell); is {
		_, _ = io.WriteString(sum, cell.Limit+"\xff"+cell.Key+"\xff")
	} else {
		_, _ = io.WriteString(sum, fmt.Sprint(v)+"\xff")
	}
	h := sum.Sum64()
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// chance returns true in this share of cases.
func (s *scheduler) chance(thousandths int) bool { return s.rng.IntN(1000) < thousandths }

func (s *scheduler) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Int64N(int64(most-least)+1))
}
