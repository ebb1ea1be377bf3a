package whatif

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/store"
)

const (
	readTimeout   = 2 * time.Minute  // to send and read a log
	answerTimeout = 25 * time.Second // to wait for a turn, and to replay a log against limits
	turnTimeout   = 5 * time.Second  // to wait for a turn
)

// Bounds on the requests that wait for a turn to read a log.
const (
	maxWaiting          = 16 // of all callers
	maxWaitingPerCaller = 4
)

// readMemory is about the memory for reading a log, beside what is kept of it.
const readMemory = 4 << 20

const (
	maxLimits    = 8   // limits of a query
	maxTop       = 100 // keys with most refusals that a query may request
	maxNameBytes = 255 // of a log's name
)

// Routes returns the routes of the what-if API.
func (l *Logs) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "POST /v1/whatif", Role: auth.RoleRead, Turn: l.readingTurn, Answer: l.post, MaxBody: readMemory},
		{Pattern: "GET /v1/whatif", Role: auth.RoleRead, Answer: l.get},
		{Pattern: "GET /v1/whatif/suggest", Role: auth.RoleRead, Answer: l.suggest},
	}
}

// takeTurn waits for a turn, and returns a function that gives the turn back. After turnTimeout it is store.ErrBusy.
func takeTurn(ctx context.Context, turns chan struct{}) (end func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTimeout,
		fmt.Errorf("%w: other logs are being replayed", store.ErrBusy))
	defer cancel()
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readingTurn waits for a turn to read a log. The number of waiting requests is bounded, in all and for each caller, so
// that a client that sends nothing cannot keep others out.
func (l *Logs) readingTurn(r *http.Request) (end func(), err error) {
	caller := owner(r.Context())
	l.mu.Lock()
	wait := l.waiting[caller] < maxWaitingPerCaller && l.allWaiting < maxWaiting
	if wait {
		l.waiting[caller]++
		l.allWaiting++
	}
	l.mu.Unlock()
	if !wait {
		return nil, fmt.Errorf("%w: other logs wait to be replayed", store.ErrBusy)
	}
	end, err = takeTurn(r.Context(), l.reading)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[caller]--; l.waiting[caller] == 0 {
		delete(l.waiting, caller)
	}
	l.allWaiting--
	return end, err
}

// pacedReader reads a body, which has to come at a minimum pace since it occupies a turn.
type pacedReader struct {
	from    io.Reader
	begin   time.Time
	read    int64
	control *http.ResponseController
}

const (
	minPace   = 16 << 10         // bytes a second
	paceGrace = 10 * time.Second // in addition
)

// Read implements io.Reader.
func (p *pacedReader) Read(b []byte) (int, error) {
	until := p.begin.Add(min(readTimeout, paceGrace+time.Duration(p.read)*time.Second/minPace))
	_ = p.control.SetReadDeadline(until)
	n, err := p.from.Read(b)
	if p.read += int64(n); errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the log came too slowly: %w", err)
	}
	return n, err
}

// owner returns the name of the caller, who owns a log; empty: the server knows no callers.
func owner(ctx context.Context) string {
	if c := auth.CallerOf(ctx); c != nil {
		return c.Name
	}
	return ""
}

// post reads the log in the body, or the history of a limit, keeps it, and returns what it is.
func (l *Logs) post(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(readTimeout + answerTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	q, recorded, err := parseLogQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	var from io.Reader = &pacedReader{
		from: http.MaxBytesReader(w, r.Body, l.cfg.MaxUpload), begin: time.Now(), control: control,
	}
	finish := func() error { return nil }
	if recorded != "" {
		if from, finish, err = l.openHistory(ctx, recorded, q); err != nil {
			return nil, err
		}
	}
	a, err := l.read(ctx, owner(ctx), q, from)
	if wrong := finish(); wrong != nil {
		return nil, problem(wrong)
	}
	if recorded != "" && errors.Is(err, replay.ErrEmpty) {
		err = headgate.Invalid("recorded", "%s has recorded nothing yet", recorded)
	}
	if err != nil {
		return nil, badLog(ctx, err)
	}
	text, err := json.Marshal(a)
	return append(text, '\n'), err
}

// get replays a kept log against limits, and returns the reports.
func (l *Logs) get(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	v, err := edge.ParseQuery(r.URL.RawQuery, "id", "limit...", "top")
	if err != nil {
		return nil, err
	}
	top := replay.DefaultTop
	if v.Has("top") {
		if top, err = strconv.Atoi(v.Get("top")); err != nil || top < 1 || top > maxTop {
			return nil, headgate.Invalid("top", "%+.40q is not a number from 1 to %d", v.Get("top"), maxTop)
		}
	}
	if len(v["limit"]) > maxLimits {
		return nil, headgate.Invalid("limit", "%d are given; name at most %d", len(v["limit"]), maxLimits)
	}
	limits := make([]headgate.Limit, len(v["limit"]))
	for i, text := range v["limit"] {
		if limits[i], err = l.resolveLimit(r.Context(), text); err != nil {
			return nil, err
		}
	}
	if len(limits) == 0 {
		return nil, headgate.Invalid("limit", "is missing: a name, or a notation such as token-bucket 10/1m burst 5")
	}
	return l.withRequests(r.Context(), v.Get("id"), func(ctx context.Context, q *replay.Requests, w io.Writer) error {
		reports, err := q.Compare(ctx, top, limits...)
		if err != nil {
			return err
		}
		return replay.WriteAllJSON(w, reports)
	})
}

// resolveLimit returns the limit of a name or a notation.
func (l *Logs) resolveLimit(ctx context.Context, text string) (headgate.Limit, error) {
	limit, err := headgate.Parse(text)
	if headgate.ValidName(text) == nil && l.cfg.Names != nil {
		if err := auth.CallerOf(ctx).CheckLimit(text); err != nil {
			return limit, err
		}
		return l.cfg.Names.Find(ctx, text, "")
	}
	if err == nil && limit.OnlyName() {
		err = headgate.ErrUnknownLimit
	}
	return limit, err
}

// suggest returns limits that would have refused at most a share of a kept log.
func (l *Logs) suggest(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	v, err := edge.ParseQuery(r.URL.RawQuery, "id", "refuse", "of", "period...")
	if err != nil {
		return nil, err
	}
	for name, usual := range map[string][]string{"refuse": {"0.1%"}, "of": {"requests"}, "period": {"1m", "1h", "1d"}} {
		if !v.Has(name) {
			v[name] = usual
		}
	}
	criteria, err := replay.ParseSuggestOptions(v.Get("refuse"), v.Get("of"), v["period"])
	if err != nil {
		return nil, err
	}
	return l.withRequests(r.Context(), v.Get("id"), func(ctx context.Context, q *replay.Requests, w io.Writer) error {
		found, err := q.Suggest(ctx, criteria)
		if err != nil {
			return err
		}
		return found.WriteJSON(w)
	})
}

// withRequests waits for a turn, calls do with the requests of a log, and returns the text that do writes.
func (l *Logs) withRequests(ctx context.Context, id string,
	do func(ctx context.Context, q *replay.Requests, w io.Writer) error,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	requests, err := l.find(owner(ctx), id)
	if err != nil {
		return nil, err
	}
	end, err := takeTurn(ctx, l.replaying)
	if err != nil {
		return nil, err
	}
	defer end()
	var out bytes.Buffer
	err = do(ctx, requests, &out)
	return out.Bytes(), problem(err)
}

// parseLogQuery parses how a log is to be read. recorded is the limit whose history is the log; empty: the body is.
func parseLogQuery(raw string) (q *logQuery, recorded string, err error) {
	v, err := edge.ParseQuery(raw, "key", "name", "recorded", "format", "where...", "since", "until", "cost", "settle",
		"year", "attempts", "time", "time_format")
	if err != nil {
		return nil, "", err
	}
	q = &logQuery{key: v.Get("key"), name: v.Get("name"), cfg: replay.Config{
		Format: accesslog.Format(strings.ToLower(v.Get("format"))), Where: v["where"],
		Config: accesslog.Config{
			Cost: v.Get("cost"), Settle: v.Get("settle"), Time: v.Get("time"), TimeFormat: v.Get("time_format"),
		},
	}}
	var noSince, noUntil, noYear, noAttempts error
	q.cfg.Since, noSince = replay.ParseTime("since", v.Get("since"))
	q.cfg.Until, noUntil = replay.ParseTime("until", v.Get("until"))
	q.cfg.Year, noYear = strconv.Atoi(v.Get("year"))
	q.cfg.Attempts, noAttempts = strconv.ParseBool(v.Get("attempts"))
	switch {
	case noSince != nil, noUntil != nil:
		err = cmp.Or(noSince, noUntil)
	case v.Has("year") && noYear != nil:
		err = headgate.Invalid("year", "%+.40q is not a year", v.Get("year"))
	case v.Has("attempts") && noAttempts != nil:
		err = headgate.Invalid("attempts", "%+.40q is not true or false", v.Get("attempts"))
	case v.Has("recorded") && v.Get("recorded") == "":
		err = headgate.Invalid("recorded", "is empty; it is the name of a limit")
	case len(q.name) > maxNameBytes:
		err = headgate.Invalid("name", "is longer than %d bytes", maxNameBytes)
	}
	return q, v.Get("recorded"), err
}

// errGone is the error about the id of a log that is not kept.
var errGone = &api.Problem{
	Title: "Not found", Status: http.StatusNotFound, Field: "id",
	Detail: "no log of this id is kept for you: it was not used for long, or others needed the room; send it again",
}

// badLog returns what problem makes of an error, or, if the log's contents are wrong, a problem with status 400.
func badLog(ctx context.Context, err error) error {
	err = problem(err)
	_, isProblem := errors.AsType[*api.Problem](err)
	if isProblem || ctx.Err() != nil || errors.Is(err, headgate.ErrInvalid) {
		return err
	}
	return &api.Problem{
		Title: "Bad request", Status: http.StatusBadRequest, Detail: strings.TrimPrefix(err.Error(), "replay: "),
		Field: "log",
	}
}

// problem makes a problem of an error about a bound of the server: bytes, memory or time. Others stay as they are.
func problem(err error) error {
	p := &api.Problem{Title: "Request too large", Status: http.StatusRequestEntityTooLarge}
	large, ok := errors.AsType[*http.MaxBytesError](err)
	switch {
	case ok:
		p.Detail = fmt.Sprintf("at most %d bytes are read; headgate replay has no such bound", large.Limit)
	case errors.Is(err, replay.ErrLarge):
		p.Detail = strings.TrimPrefix(err.Error(), "replay: ") + "; headgate replay has no such bound"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		p.Title, p.Status = "It took too long", http.StatusGatewayTimeout
		p.Detail = "Nothing was charged. The command headgate replay has no such bound."
	default:
		return err
	}
	return p
}
