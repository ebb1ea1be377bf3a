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

// scheduler lets one goroutine run at a time, in an order that a seed decides. It works in a bubble of
// testing/synctest: when every goroutine waits for another, virtual time goes on to the next timer.
//
// A goroutine that wakes another one goes on running; the other one parks at once, and is resumed later. So the order
// in which the runtime wakes several goroutines does not matter, since the parked ones are ordered by the numbers of
// their goroutines. No two timers end at the same nanosecond.
type scheduler struct {
	rng   *rand.Rand
	start time.Time // of the simulation, in virtual time

	advanced  time.Duration // the virtual time when checkProgress last saw it grow
	idleSteps int           // goroutines resumed and clocks read since then

	mu       sync.Mutex
	ready    []*task        // parked, and free to go on; guarded by mu
	live     int            // tasks that have not ended; guarded by mu
	parked   chan struct{}  // receives when a task has parked
	current  *task          // runs now
	lastTask int            // number of the newest task
	timers   map[int64]bool // the times at which timers end
	pruned   int64          // when timers was last cleared of those that had ended
}

type task struct {
	number  int
	process *process
	gate    chan struct{} // receives when the task may go on
}

// process is a simulated process on a computer with clocks of its own. When it dies, its goroutines end at the next
// place where they would wait.
type process struct {
	name       string
	dead       bool
	killed     chan struct{} // closed when the process is dead
	ppm        int64         // by how many millionths the clocks of the process are too fast
	wallOffset time.Duration // by how much the wall clock is ahead of localTime
}

func newProcess(name string) *process { return &process{name: name, killed: make(chan struct{})} }

func (p *process) kill() {
	if !p.dead {
		p.dead = true
		close(p.killed)
	}
}

// checkProgress panics if a process runs on and on while no virtual time passes.
func (s *scheduler) checkProgress() {
	if now := s.now(); now > s.advanced {
		s.advanced, s.idleSteps = now, 0
	} else if s.idleSteps++; s.idleSteps > maxIdleSteps {
		panic(fmt.Sprintf("process %s goes on and on, and no time passes", s.current.process.name))
	}
}

// maxIdleSteps is how often goroutines may be resumed or read their clocks while no virtual time passes. A process
// that does so more often is in an endless loop.
const maxIdleSteps = 1_000_000

func newScheduler(seed uint64) *scheduler {
	return &scheduler{
		rng: rand.New(rand.NewPCG(seed, 0x6865616467617465)), start: time.Now(), // "headgate"
		parked: make(chan struct{}, 1), timers: map[int64]bool{},
	}
}

var _ sched.Simulator = (*scheduler)(nil)

// spawn starts a task of a process, which runs f when its turn comes.
func (s *scheduler) spawn(p *process, f func()) {
	s.lastTask++
	t := &task{number: s.lastTask, process: p, gate: make(chan struct{})}
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

// park adds a task to those that run may resume.
func (s *scheduler) park(t *task) {
	s.mu.Lock()
	s.ready = append(s.ready, t)
	s.mu.Unlock()
	select {
	case s.parked <- struct{}{}:
	default:
	}
}

// awaitTurn waits until the scheduler lets a task go on, and ends it if its process is dead.
func (s *scheduler) awaitTurn(t *task) {
	<-t.gate
	if t.process.dead {
		runtime.Goexit()
	}
}

// run resumes one task after another until all have ended.
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
			<-s.parked // virtual time passes
			continue
		}
		slices.SortFunc(s.ready, func(a, b *task) int { return a.number - b.number })
		i := s.rng.IntN(len(s.ready))
		t := s.ready[i]
		s.ready = slices.Delete(s.ready, i, i+1)
		s.mu.Unlock()
		s.current = t
		s.checkProgress()
		t.gate <- struct{}{}
	}
}

// now returns the time since the start of the simulation.
func (s *scheduler) now() time.Duration { return time.Since(s.start) }

// uniqueDelay returns d, made longer by as many nanoseconds as it takes for no other timer to end at the same
// nanosecond.
func (s *scheduler) uniqueDelay(d time.Duration) time.Duration {
	now := int64(s.now())
	if now > s.pruned+int64(time.Minute) {
		maps.DeleteFunc(s.timers, func(at int64, _ bool) bool { return at < now })
		s.pruned = now
	}
	at := now + int64(max(d, 1))
	for s.timers[at] {
		at++
	}
	s.timers[at] = true
	return time.Duration(at - now)
}

func (s *scheduler) Go(f func()) { s.spawn(s.current.process, f) }

func (s *scheduler) Yield() {
	t := s.current
	s.park(t)
	s.awaitTurn(t)
}

// Wait implements sched.Simulator. If several channels are ready, it picks one at random.
func (s *scheduler) Wait(d time.Duration, a, b, c <-chan struct{}) int {
	if s.current.process.dead {
		runtime.Goexit()
	}
	chans := [...]<-chan struct{}{a, b, c}
	for i, offset := 0, s.rng.IntN(len(chans)); i < len(chans); i++ {
		k := (offset + i) % len(chans)
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
		d = s.TimerDuration(d)
	}
	return s.block(d, a, b, c)
}

// block lets other tasks run until a channel is ready, d of virtual time has passed (never, if d is not above 0), or
// the process of the task is dead.
func (s *scheduler) block(d time.Duration, a, b, c <-chan struct{}) int {
	t, which := s.current, sched.TimeOut
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
	case <-t.process.killed:
	}
	s.park(t)
	s.awaitTurn(t)
	return which
}

func (s *scheduler) sleep(d time.Duration) { s.block(s.uniqueDelay(d), nil, nil, nil) }

// localTime returns how much time has passed by the clocks of a process when d of true time has passed.
func (p *process) localTime(d time.Duration) time.Duration {
	return d + d/1_000_000*time.Duration(p.ppm)
}

func (s *scheduler) Now() time.Time {
	s.checkProgress()
	return s.start.Add(s.current.process.localTime(s.now()))
}

func (s *scheduler) Wall() time.Time { return s.wallOf(s.current.process) }

func (s *scheduler) wallOf(p *process) time.Time {
	return s.start.Add(p.localTime(s.now()) + p.wallOffset)
}

func (s *scheduler) TimerDuration(d time.Duration) time.Duration {
	return s.uniqueDelay(d - d/1_000_000*time.Duration(s.current.process.ppm))
}

func (s *scheduler) Uint64() uint64 { return s.rng.Uint64() }

// Hash implements sched.Simulator by FNV-1a and the final mixing of splitmix64. Without the mixing, texts that differ
// in their last digit have similar hashes: store/memory takes the exclusive or of the hashes of a limit and of a key,
// which was the same for two cells.
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

// chance returns true with a probability in thousandths.
func (s *scheduler) chance(thousandths int) bool { return s.rng.IntN(1000) < thousandths }

func (s *scheduler) between(shortest, longest time.Duration) time.Duration {
	return shortest + time.Duration(s.rng.Int64N(int64(longest-shortest)+1))
}
