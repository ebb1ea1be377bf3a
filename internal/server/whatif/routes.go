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

// How long it may take to send and read a log, to answer a question, and to wait for a turn.
const (
	readWithin   = 2 * time.Minute
	answerWithin = 25 * time.Second
	turnWithin   = 5 * time.Second
)

// How many requests may wait for a turn to read a log, all together and of one caller.
const (
	allWaiting = 16
	maxWaiting = 4
)

// held is about what a log takes while it is read, beside what is kept of it.
const held = 4 << 20

// maxLimits is how many limits a question may have, and maxTop how many keys are named.
const (
	maxLimits = 8
	maxTop    = 100
)

// Routes returns the paths that it serves.
func (l *Logs) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "POST /v1/whatif", Role: auth.RoleRead, Turn: l.readingTurn, Answer: l.post, MaxBody: held},
		{Pattern: "GET /v1/whatif", Role: auth.RoleRead, Answer: l.get},
		{Pattern: "GET /v1/whatif/suggest", Role: auth.RoleRead, Answer: l.suggest},
	}
}

// turn waits for one of the turns of a kind, and returns what gives it back.
func turn(ctx context.Context, turns chan struct{}) (end func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnWithin,
		fmt.Errorf("%w: other logs are being replayed", store.ErrBusy))
	defer cancel()
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readingTurn waits for a turn to read a log. The number of requests that wait is bounded, in all and for each caller:
// a client that sends nothing must not keep others out.
func (l *Logs) readingTurn(r *http.Request) (end func(), err error) {
	caller := owner(r.Context())
	l.mu.Lock()
	wait := l.waiting[caller] < maxWaiting && l.waits < allWaiting
	if wait {
		l.waiting[caller]++
		l.waits++
	}
	l.mu.Unlock()
	if !wait {
		return nil, fmt.Errorf("%w: other logs wait to be replayed", store.ErrBusy)
	}
	end, err = turn(r.Context(), l.reading)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[caller]--; l.waiting[caller] == 0 {
		delete(l.waiting, caller)
	}
	l.waits--
	return end, err
}

// paced is the body of a request that has to come at some pace: a turn is held for it.
type paced struct {
	from    io.Reader
	begin   time.Time
	read    int64
	control *http.ResponseController
}

// The pace in bytes a second, after a while for which it does not matter.
const (
	leastPace   = 16 << 10
	beforePaced = 10 * time.Second
)

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	until := p.begin.Add(min(readWithin, beforePaced+time.Duration(p.read)*time.Second/leastPace))
	_ = p.control.SetReadDeadline(until)
	n, err := p.from.Read(b)
	if p.read += int64(n); errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the log came too slowly: %w", err)
	}
	return n, err
}

// owner returns the name of the caller of a request, to whom a log belongs.
func owner(ctx context.Context) string {
	if c := auth.From(ctx); c != nil {
		return c.Name
	}
	return ""
}

// post reads a log that is sent, or what a limit has recorded.
func (l *Logs) post(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w) // which a test need not have
	_ = control.SetWriteDeadline(time.Now().Add(readWithin + answerWithin))
	ctx, cancel := context.WithTimeout(r.Context(), readWithin)
	defer cancel()
	q, recorded, err := readQuestion(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	var from io.Reader = &paced{
		from: http.MaxBytesReader(w, r.Body, l.cfg.MaxUpload), begin: time.Now(), control: control,
	}
	finish := func() error { return nil }
	if recorded != "" {
		if from, finish, err = l.recorded(ctx, recorded, q); err != nil {
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

// get returns what limits would have done to a log.
func (l *Logs) get(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	v, err := edge.Query(r.URL.RawQuery, "id", "limit...", "top")
	if err != nil {
		return nil, err
	}
	top := replay.DefaultTop
	if v.Has("top") {
		n, err := strconv.Atoi(v.Get("top"))
		if err != nil || n < 1 || n > maxTop {
			return nil, headgate.Invalid("top", "%+.40q is not a number from 1 to %d", v.Get("top"), maxTop)
		}
		top = n
	}
	if len(v["limit"]) > maxLimits {
		return nil, headgate.Invalid("limit", "%d are given; name at most %d", len(v["limit"]), maxLimits)
	}
	limits := make([]headgate.Limit, len(v["limit"]))
	for i, text := range v["limit"] {
		if limits[i], err = l.limit(r.Context(), text); err != nil {
			return nil, err
		}
	}
	if len(limits) == 0 {
		return nil, headgate.Invalid("limit", "is missing: a name, or a notation such as token-bucket 10/1m burst 5")
	}
	return l.ask(r.Context(), v.Get("id"), func(ctx context.Context, q *replay.Requests, w io.Writer) error {
		reports, err := q.Compare(ctx, top, limits...)
		if err != nil {
			return err
		}
		return replay.WriteAllJSON(w, reports)
	})
}

// limit returns the limit of a name or a notation.
func (l *Logs) limit(ctx context.Context, text string) (headgate.Limit, error) {
	limit, err := headgate.Parse(text)
	if headgate.ValidName(text) == nil && l.cfg.Names != nil {
		if err := auth.From(ctx).Touches(text); err != nil {
			return limit, err
		}
		return l.cfg.Names.Find(ctx, text, "")
	}
	if err == nil && limit.OnlyName() {
		err = headgate.ErrUnknownLimit
	}
	return limit, err
}

// suggest names limits that would have refused little of a log.
func (l *Logs) suggest(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	v, err := edge.Query(r.URL.RawQuery, "id", "refuse", "of", "period...")
	if err != nil {
		return nil, err
	}
	refuse, of, periods := "0.1%", "requests", []string{"1m", "1h", "1d"}
	if v.Has("refuse") {
		refuse = v.Get("refuse")
	}
	if v.Has("of") {
		of = v.Get("of")
	}
	if v.Has("period") {
		periods = v["period"]
	}
	ask, err := replay.ParseAsk(refuse, of, periods)
	if err != nil {
		return nil, err
	}
	return l.ask(r.Context(), v.Get("id"), func(ctx context.Context, q *replay.Requests, w io.Writer) error {
		found, err := q.Suggest(ctx, ask)
		if err != nil {
			return err
		}
		return found.WriteJSON(w)
	})
}

// ask answers a question about a log when it is its turn, and returns what do writes.
func (l *Logs) ask(ctx context.Context, id string,
	do func(ctx context.Context, q *replay.Requests, w io.Writer) error,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	requests, err := l.find(owner(ctx), id)
	if err != nil {
		return nil, err
	}
	end, err := turn(ctx, l.asking)
	if err != nil {
		return nil, err
	}
	defer end()
	var out bytes.Buffer
	err = do(ctx, requests, &out)
	return out.Bytes(), problem(err)
}

// readQuestion reads how a log is to be read; recorded is the limit whose history is requested, if any.
func readQuestion(raw string) (q *question, recorded string, err error) {
	v, err := edge.Query(raw, "key", "name", "recorded", "format", "where...", "since", "until", "cost", "settle",
		"year", "attempts", "time", "time_format")
	if err != nil {
		return nil, "", err
	}
	q = &question{key: v.Get("key"), name: v.Get("name"), cfg: replay.Config{
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
	case len(q.name) > maxName:
		err = headgate.Invalid("name", "is longer than %d bytes", maxName)
	}
	return q, v.Get("recorded"), err
}

// maxName is how long the name of a log may be.
const maxName = 255

// errGone is the error about an id of which no log is kept.
var errGone = &api.Problem{
	Title: "Not found", Status: http.StatusNotFound, Field: "id",
	Detail: "no log of this id is kept for you: it was not used for long, or others needed the room; send it again",
}

// badLog makes a problem of what is wrong with a log that was read, unless it is something else.
func badLog(ctx context.Context, err error) error {
	err = problem(err)
	_, told := errors.AsType[*api.Problem](err)
	if told || ctx.Err() != nil || errors.Is(err, headgate.ErrInvalid) {
		return err
	}
	return &api.Problem{
		Title: "Bad request", Status: http.StatusBadRequest, Detail: strings.TrimPrefix(err.Error(), "replay: "),
		Field: "log",
	}
}

// problem makes a problem of an error of a bound that the command has not. Other errors stay as they are.
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
