package httplimit

import (
	"log/slog"
	"runtime"
	"sync"
	"weak"

	"github.com/headgate/headgate"
)

// unnamedLimits holds the limits without a name of all handlers. The store identifies a limit without a name by its
// notation, so two handlers of "5/1m" count each other's requests, which few expect.
var unnamedLimits = struct {
	sync.Mutex
	known map[unnamedLimit]struct{}
}{known: map[unnamedLimit]struct{}{}}

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
	unnamedLimits.Lock()
	defer unnamedLimits.Unlock()
	for u := range handlerLimits {
		if _, ok := unnamedLimits.known[u]; ok {
			logger.Warn("httplimit: two handlers have this limit without a name, so each counts the requests of both; "+
				"headgate.ParseNamed names limits", slog.String("limit", u.notation))
			continue
		}
		unnamedLimits.known[u] = struct{}{}
		runtime.AddCleanup(l, forgetUnnamed, u)
	}
}

func forgetUnnamed(u unnamedLimit) {
	unnamedLimits.Lock()
	defer unnamedLimits.Unlock()
	delete(unnamedLimits.known, u)
}
