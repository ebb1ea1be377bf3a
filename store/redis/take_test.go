package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// cli runs TakeScript by redis-cli.
type cli struct {
	options []string
	prefix  string
	script  string
}

func newCLI(tb testing.TB, rawURL string, cluster bool) *cli {
	tb.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	c := &cli{prefix: u.Query().Get("prefix"), script: redis.TakeScript()}
	u.Host, _, _ = strings.Cut(u.Host, ",") // any node of a Cluster will do
	u.RawQuery = ""
	c.options = []string{"-u", u.String()}
	if c.prefix == "" {
		c.prefix = "headgate:"
	}
	if cluster {
		c.options = append(c.options, "-c")
	}
	return c
}

// run runs redis-cli without a terminal, and returns its output.
func (c *cli) run(words ...string) (string, error) {
	program, err := dbtest.RedisProgram("redis-cli")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(context.Background(), program, slices.Concat(c.options, words)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// take charges a cost in credits, and returns the numbers of the answer by their names.
func (c *cli) take(l headgate.Limit, key string, credits int64) (map[string]int64, error) {
	p := l.Params()
	args, err := redis.TakeArguments(&p)
	if err != nil {
		return nil, err
	}
	return c.takeWithArgs(l.Name(), key, append(args, fmt.Sprint("cost=", credits)))
}

func (c *cli) takeWithArgs(limit, key string, args []string) (map[string]int64, error) {
	keys := []string{c.prefix + "c:{k:" + key + "}:" + limit, c.prefix + "l:{k:" + key + "}:" + limit}
	out, err := c.run(slices.Concat([]string{"EVAL", c.script, strconv.Itoa(len(keys))}, keys, args)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	lines, answer := strings.Split(out, "\n"), map[string]int64{}
	for i := 0; i+1 < len(lines); i += 2 {
		if answer[lines[i]], err = strconv.ParseInt(lines[i+1], 10, 64); err != nil {
			return nil, fmt.Errorf("redis-cli prints %q", out)
		}
	}
	if len(answer) != 6 || len(lines) != 12 {
		return nil, fmt.Errorf("redis-cli prints %q", out)
	}
	return answer, nil
}

// remaining calculates the remaining units as the head of the script documents it.
func remaining(p law.Params, answer map[string]int64) int64 {
	if answer["blocked_until"] > answer["clock"] {
		return 0
	}
	return max(0, p.Capacity-answer["used"]) / p.Unit
}

func parseLimit(tb testing.TB, name, notation string) headgate.Limit {
	tb.Helper()
	l, err := headgate.ParseNamed(name, notation)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestRedisCLIAndTheDriverShareACell charges one key by redis-cli and the driver in turns, until both are refused.
func TestRedisCLIAndTheDriverShareACell(t *testing.T) {
	t.Parallel()
	testSharedCell(t, dbtest.Redis(t), false)
}

func TestRedisCLIAndTheDriverShareACellOfACluster(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	testSharedCell(t, dbtest.RedisCluster(t), true)
}

// newLimiter returns a Limiter without a deadline that a busy machine could miss.
func newLimiter(s store.Store) *headgate.Limiter {
	return headgate.New(s, &headgate.Config{Timeout: time.Minute})
}

func testSharedCell(t *testing.T, dsn string, cluster bool) {
	t.Helper()
	for i, notation := range []string{
		"token-bucket 7/1d", "token-bucket 5/1d burst 9", "leaky-bucket 5/1d capacity 7.5", "gcra 5/1d burst 6",
		"fixed-window 7/30d", "fixed-window 7/30d from-first", "interval 3/10d burst 7", "sliding-window 7/30d",
		"sliding-log 7/30d", "sliding-log 7/30d history 60d",
		"token-bucket 7/1d block 1h", "sliding-log 7/30d block 1h",
	} {
		t.Run(notation, func(t *testing.T) {
			s, c := open(t, dsn), newCLI(t, dsn, cluster)
			limiter, limit, key := newLimiter(s), parseLimit(t, fmt.Sprint("l", i), notation), "al{ice}% "
			p, admitted := limit.Params(), int64(0)
			for n := range p.Capacity/p.Unit + 4 { // redis-cli is refused twice, and so is the driver
				charge := headgate.Charge{Limit: limit, Key: key, Cost: headgate.Units(1)}
				before, err := limiter.Inspect(t.Context(), limit, key)
				if err != nil {
					t.Fatal(err)
				}
				if n%2 == 0 {
					d, err := limiter.Take(t.Context(), charge)
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						admitted++
					}
					continue
				}
				a, err := c.take(limit, "al%7Bice%7D%25 ", p.Unit)
				if err != nil {
					t.Fatal(err)
				}
				after, err := limiter.Inspect(t.Context(), limit, key)
				if err != nil {
					t.Fatal(err)
				}
				d, err := limiter.Check(t.Context(), charge)
				if err != nil {
					t.Fatal(err)
				}
				if remaining(p, a) != after.Remaining {
					t.Errorf("charge %d: got %v, so %d remain, want %+v", n, a, remaining(p, a), after)
				}
				if a["granted"] == 1 {
					admitted++
					continue
				}
				if after.Remaining != before.Remaining && p.Block == 0 {
					t.Errorf("refused charge %d: got %d remaining, want %d", n, after.Remaining, before.Remaining)
				}
				retryAfter := time.Duration(a["retry_at"]-a["clock"]) * time.Microsecond
				if d.Allowed || (retryAfter-d.RetryAfter).Abs() > 5*time.Minute {
					t.Errorf("charge %d: got %v, so retry after %s, want %+v as Check says", n, a, retryAfter, d)
				}
			}
			if want := p.Capacity / p.Unit; admitted != want {
				t.Errorf("got %d admitted, want %d", admitted, want)
			}
		})
	}
}

// TestConcurrentRedisCLIsKeepTheCapacity runs eight redis-cli and the driver at once: 50 charges for a capacity of 25.
func TestConcurrentRedisCLIsKeepTheCapacity(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Redis(t)
	s, c := open(t, dsn), newCLI(t, dsn, false)
	limiter := newLimiter(s)
	for _, notation := range []string{"fixed-window 25/30d from-first", "sliding-log 25/30d"} {
		limit := parseLimit(t, "busy", notation)
		p := limit.Params()
		var admitted, refused atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 5 {
					a, err := c.take(limit, notation, p.Unit)
					if err != nil {
						t.Error(err)
						return
					}
					if a["granted"] == 1 {
						admitted.Add(1)
					} else {
						refused.Add(1)
					}
					if a["used"] > p.Capacity {
						t.Errorf("got %v in use, want %d at most", a["used"], p.Capacity)
					}
				}
			})
		}
		wg.Go(func() {
			for range 10 {
				d, err := limiter.Allow(t.Context(), limit, notation)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					admitted.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
		wg.Wait()
		if admitted.Load() != 25 || refused.Load() != 25 {
			t.Errorf("%s: got %d admitted and %d refused, want 25 and 25", notation, admitted.Load(), refused.Load())
		}
	}
}

// TestTakeScriptSeesChangesOfTheDriver checks a charge by redis-cli after a settlement, a block and a changed limit.
func TestTakeScriptSeesChangesOfTheDriver(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Redis(t)
	s, c, ctx := open(t, dsn), newCLI(t, dsn, false), t.Context()
	limiter, limit := newLimiter(s), parseLimit(t, "api", "fixed-window 10/30d from-first")
	p := limit.Params()

	r, err := limiter.Reserve(ctx, 0, headgate.Charge{Limit: limit, Key: "settled", Cost: headgate.Units(8)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Settle(ctx, headgate.Units(3)); err != nil {
		t.Fatal(err)
	}
	if a, err := c.take(limit, "settled", p.Unit/2); err != nil || a["used"] != p.Unit*7/2 || a["granted"] != 1 {
		t.Errorf("after a settlement: got %v, %v", a, err)
	}
	if _, err := limiter.Block(ctx, limit, "blocked", time.Hour, "why"); err != nil {
		t.Fatal(err)
	}
	if a, err := c.take(limit, "blocked", 1); err != nil || a["granted"] != 0 || a["retry_at"] != a["blocked_until"] {
		t.Errorf("after a block: got %v, %v", a, err)
	}
	if a, err := c.take(limit, "never", 11*p.Unit); err != nil || a["granted"] != 0 || a["retry_at"] != law.Never {
		t.Errorf("above the capacity: got %v, %v", a, err)
	}

	// Another definition: the script converts the used units as the driver does.
	if _, err := limiter.Allow(ctx, limit, "changed"); err != nil {
		t.Fatal(err)
	}
	changedLimit := parseLimit(t, "api", "sliding-log 4/30d")
	if a, err := c.take(changedLimit, "changed", 3*changedLimit.Params().Unit); err != nil || a["granted"] != 1 {
		t.Errorf("after a change: got %v, %v", a, err)
	}
	if d, err := limiter.Check(ctx, headgate.Charge{Limit: changedLimit, Key: "changed"}); err != nil || d.Allowed {
		t.Errorf("after a change: got %+v, %v; want a refusal", d, err)
	}
}

func TestTakeScriptRefusesInvalidArguments(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Redis(t)
	s, c := open(t, dsn), newCLI(t, dsn, false)
	p := parseLimit(t, "api", "token-bucket 5/1d").Params()
	args, err := redis.TakeArguments(&p)
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "cost=1000")
	argsWithout := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, name+"=") })
	}
	for want, args := range map[string][]string{
		"cost is missing, or is 0":      argsWithout("cost"),
		"heal is missing, or is 0":      append(argsWithout("heal"), "heal=0"),
		"step is missing, or is 0":      argsWithout("step"),
		"cost=-1 is not NAME=NUMBER":    append(argsWithout("cost"), "cost=-1"),
		"cost=1.5 is not NAME=NUMBER":   append(argsWithout("cost"), "cost=1.5"),
		"cost=1e3 is not NAME=NUMBER":   append(argsWithout("cost"), "cost=1e3"),
		"nonsense=1 is not NAME=NUMBER": append(slices.Clone(args), "nonsense=1"),
		"verb=5 is not NAME=NUMBER":     append(slices.Clone(args), "verb=5"),
		"is above 9007199254740991":     append(argsWithout("cost"), "cost=9007199254740992"),
		"kind is above 3":               append(argsWithout("kind"), "kind=4"),
		"anchor is above 1":             append(argsWithout("anchor"), "anchor=2"),
		"3000 is not NAME=NUMBER":       append(slices.Clone(args), "3000"),
		"unit is missing, or is 0":      append(argsWithout("unit"), "unit=0"),
	} {
		if a, err := c.takeWithArgs("api", "alice", args); !strings.Contains(fmt.Sprint(err), "ERR headgate: ") ||
			!strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v: got %v, %v; want %q", args, a, err, want)
		}
	}
	out, _ := c.run(append([]string{"EVAL", c.script, "1", "headgate:c:{k:alice}:api"}, args...)...)
	if !strings.Contains(out, "there are 1 keys, not 2") {
		t.Errorf("one key: got %s, want an error", out)
	}
	usage, err := newLimiter(s).Inspect(t.Context(), parseLimit(t, "api", "token-bucket 5/1d"), "alice")
	if err != nil || usage.Used.Float64() != 0 {
		t.Errorf("got %+v, %v; want nothing charged", usage, err)
	}
	for _, notation := range []string{"fixed-window 5/day", "concurrency 5 ttl 30s"} {
		p := parseLimit(t, "api", notation).Params()
		if args, err := redis.TakeArguments(&p); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: got %v, %v; want ErrUnsupported", notation, args, err)
		}
	}
}
