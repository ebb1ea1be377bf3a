package httplimit

import (
	"log/slog"
	"runtime"
	"sync"
	"weak"

	"github.com/headgate/headgate"
)

// unnamed are the limits without a name that stand in a handler. A limit without a name is known to the store by its
// notation, so two handlers of "5/1m" count each other's requests, which few expect.
var unnamed = struct {
	sync.Mutex
	known map[unnamedLimit]struct{}
}{known: map[unnamedLimit]struct{}{}}

type unnamedLimit struct {
	limiter  weak.Pointer[headgate.Limiter]
	notation string
}

// warnUnnamed warns of the limits of a new handler that have no name and stand in another handler of the same Limiter.
// Other kinds of limiters are not looked at, nor are limits that are chosen for each request.
func warnUnnamed(logger *slog.Logger, limiter HandlerLimiter, charges []Charge) {
	l, ok := limiter.(*headgate.Limiter)
	if !ok {
		return
	}
	mine := map[unnamedLimit]struct{}{} // the charges of one handler may repeat a limit
	for i := range charges {
		if limit := charges[i].Limit; !limit.IsZero() && !limit.Named() {
			mine[unnamedLimit{weak.Make(l), limit.Name()}] = struct{}{}
		}
	}
	unnamed.Lock()
	defer unnamed.Unlock()
	for u := range mine {
		if _, ok := unnamed.known[u]; ok {
			logger.Warn("httplimit: two handlers have this limit without a name, so each counts the requests of both; "+
				"headgate.ParseNamed names limits", slog.String("limit", u.notation))
			continue
		}
		unnamed.known[u] = struct{}{}
		runtime.AddCleanup(l, forgetUnnamed, u)
	}
}

func forgetUnnamed(u unnamedLimit) {
	unnamed.Lock()
	defer unnamed.Unlock()
	delete(unnamed.known, u)
}
