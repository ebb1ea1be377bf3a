package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/headgate/headgate/bench/rivals"
)

// modules are the libraries whose versions matter.
var modules = []string{
	"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "github.com/redis/rueidis", "modernc.org/sqlite",
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "google.golang.org/grpc",
	"golang.org/x/time", "github.com/sethvargo/go-limiter", "github.com/ulule/limiter/v3",
	"github.com/throttled/throttled/v2",
	"github.com/mennanov/limiters", "github.com/failsafe-go/failsafe-go",
}

// Facts returns what is known of the machine, the versions and the commit.
func Facts(ctx context.Context) [][2]string {
	var versions []string
	for _, m := range modules {
		if v := rivals.Version(m); v != "" {
			versions = append(versions, m+" "+v)
		}
	}
	return [][2]string{
		{"machine", fmt.Sprintf("%d x %s, %s", runtime.NumCPU(), line("/proc/cpuinfo", "model name"), memory())},
		{"system", fmt.Sprintf("%s %s, %s", runtime.GOOS, output(ctx, "uname", "-r"),
			line("/etc/os-release", "PRETTY_NAME"))},
		{"Go", fmt.Sprintf("%s, GOMAXPROCS %d", runtime.Version(), runtime.GOMAXPROCS(0))},
		{"commit", commit(ctx)},
		{"modules", strings.Join(versions, ", ")},
	}
}

func memory() string {
	var kib int
	if _, err := fmt.Sscanf(line("/proc/meminfo", "MemTotal"), "%d kB", &kib); err != nil {
		return "memory unknown"
	}
	return fmt.Sprintf("%.0f GiB", float64(kib)/(1<<20))
}

// line returns what a file says after a word.
func line(path, word string) string {
	text, _ := os.ReadFile(path)
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, word); ok {
			return strings.Trim(rest, " \t\n:=\"")
		}
	}
	return "unknown"
}

func commit(ctx context.Context) string {
	hash := output(ctx, "git", "rev-parse", "--short=12", "HEAD")
	if output(ctx, "git", "status", "--porcelain") != "" {
		hash += ", with changes that are not committed"
	}
	return hash
}

func output(ctx context.Context, name string, args ...string) string {
	out, _ := exec.CommandContext(ctx, name, args...).Output()
	return strings.TrimSpace(string(out))
}
