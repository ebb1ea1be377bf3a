package httplimit

import (
	"log/slog"
	"runtime"
	"sync"
	"weak"

	"github.com/headgate/headgate"
)

// unnamed holds the limits without a name of all handlers. The store identifies a limit without a name by its
// notation, so two handlers of "5/1m" count each other's requests, which few expect.
var unnamed = struct {
	sync.Mutex
	limits map[unnamedLimit]struct{}
}{limits: map[unnamedLimit]struct{}{}}

type unnamedLimit struct {
	limiter  weak.Pointer[headgate.Limiter]
	notation string
}

// warnUnnamed warns of the limits of a new handler that have no name and stand in another handler of the same Limiter.
// It ignores other kinds of limiters, and limits that LimitFor chooses.
func warnUnnamed(logger *slog.Logger, limiter HandlerLimiter, charges []Charge) {
	l, ok := limiter.(*headgate.Limiter)
	if !ok {
		return
	}
	handlerLimits := map[unnamedLimit]struct{}{} // the charges of one handler may repeat a limit
	for i := range charges {
		if limit := charges[i].Limit; !limit.IsZero() && !limit.Named() {
			handlerLimits[unnamedLimit{weak.Make(l), limit.Name()}] = struct{}{}
		}
	}
	unnamed.Lock()
	defer unnamed.Unlock()
	for u := range handlerLimits {
		if _, ok := unnamed.limits[u]; ok {
			logger.Warn("httplimit: two handlers have this limit without a name, so each counts the requests of both; "+
				"headgate.ParseNamed names limits", slog.String("limit", u.notation))
			continue
		}
		unnamed.limits[u] = struct{}{}
		runtime.AddCleanup(l, forgetUnnamed, u)
	}
}

func forgetUnnamed(u unnamedLimit) {
	unnamed.Lock()
	defer unnamed.Unlock()
	delete(unnamed.limits, u)
}
