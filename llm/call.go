package llm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Options adjust a Call. A nil pointer and each zero field are fine.
type Options struct {
	// Life is for how long the id is remembered: headgate.DefaultLife.
	Life time.Duration
	// Count returns the tokens in the data of an event of the stream, for charges that grow with it. It may count too
	// few: what the model reports settles the charge. Nil: the charge does not grow, so the estimate has to say as
	// many tokens of output as the answer can have.
	Count func(data []byte) int64
	// Step is by how many tokens of output a charge grows: 64. Small steps ask the store often; a step that does not
	// fit is refused, and asked again for what is needed at once.
	Step int64
	// MaxOutput is how many tokens of output the answer can have, so that the last step charges no more. 0: not known.
	MaxOutput int64
	// Failed receives the error of a settlement when a body is closed. The charge stays as it was. Nil: the error is lost.
	Failed func(error)
}

const (
	defaultStep = 64
	// maxLine and maxAnswer bound what is kept of an event, or of an answer that is no stream, to read its usage.
	maxLine   = 8 << 20
	maxAnswer = 32 << 20
)

// Limiter is what charges: a *headgate.Limiter, or a *client.Client that asks a server.
type Limiter interface {
	Once(id string, life time.Duration) headgate.Once
}

// Call is a call of a model that was charged before it began. Its methods may be called by several goroutines, but
// Body is for one.
type Call struct {
	once    headgate.Once
	charges func(Usage) []headgate.Charge
	options Options

	mu      sync.Mutex
	charged Usage // what the charges cost now
	settled bool
}

// Begin charges what a call may use, under an id of the caller's request: asked again with the same id it charges
// nothing more, and the decision says Replayed; then the call was made before. charges returns what a usage costs, of
// the same limits and keys each time, and estimate is what is charged at once: the prompt, and as much of the answer
// as may come before more is charged. The Call is nil if the decision is a refusal, and on an error, of which
// store.NothingDone says whether anything may have been charged.
func Begin(ctx context.Context, l Limiter, id string, charges func(Usage) []headgate.Charge, estimate Usage,
	options *Options,
) (*Call, headgate.Decision, error) {
	c := &Call{charges: charges, charged: estimate}
	if options != nil {
		c.options = *options
	}
	if c.options.Step <= 0 {
		c.options.Step = defaultStep
	}
	c.once = l.Once(id, c.options.Life)
	d, err := c.once.Take(ctx, charges(estimate)...)
	if err != nil || !d.Allowed {
		return nil, d, err
	}
	return c, d, nil
}

// Charged returns what the call is charged for.
func (c *Call) Charged() Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.charged
}

// Extend charges more, unless as many tokens of output are charged already: a step more, or as many as that if a step
// does not fit. It returns a *headgate.DeniedError if a limit refuses; then what was charged stays.
func (c *Call) Extend(ctx context.Context, output int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if output <= c.charged.Output {
		return nil
	}
	step := c.charged.Output + c.options.Step
	if most := c.options.MaxOutput; most > 0 {
		step = min(step, most)
	}
	for more := c.charged; ; step = 0 { // where a whole step does not fit, what is needed may
		more.Output = max(step, output)
		e, err := c.once.Extend(ctx, c.charges(more)...)
		switch {
		case err != nil:
			return err
		case e.Decision.Allowed:
			c.charged = more
			return nil
		case more.Output == output:
			return &headgate.DeniedError{Decision: e.Decision}
		}
	}
}

// Settle corrects the charges to what was used, up or down. It does so once: what comes later does nothing. After an
// error it may be called again.
func (c *Call) Settle(ctx context.Context, used Usage) error {
	return c.end(used, func(charges []headgate.Charge) error {
		_, err := c.once.Settle(ctx, charges...)
		return err
	})
}

// Cancel takes the charges back, for a call that did not reach the model: its id can begin anew.
func (c *Call) Cancel(ctx context.Context) error {
	return c.end(Usage{}, func(charges []headgate.Charge) error {
		_, err := c.once.Cancel(ctx, charges...)
		return err
	})
}

func (c *Call) end(used Usage, correct func([]headgate.Charge) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled {
		return nil
	}
	if err := correct(c.charges(used)); err != nil {
		return err
	}
	c.settled, c.charged = true, used
	return nil
}

// Body returns the body of an answer, as it is, and settles the call when it is closed: at what the model reports; if
// it reports nothing, or the stream was not read to its end, at the tokens that Options.Count has counted, or else at
// what was charged. An answer with a status of 400 or more has used nothing.
//
// A stream is read event by event. Where the charge has to grow and a limit refuses that, Read returns a
// *headgate.DeniedError in place of the next event. The charge is settled also if the request's context has ended. A
// compressed body reports nothing: net/http decompresses answers, unless the request asks for an encoding itself.
func (c *Call) Body(resp *http.Response) io.ReadCloser {
	ctx := context.Background()
	if resp.Request != nil {
		ctx = context.WithoutCancel(resp.Request.Context())
	}
	b := &body{call: c, ctx: ctx, source: resp.Body, failed: resp.StatusCode >= http.StatusBadRequest}
	b.used = c.Charged()
	b.used.Output = 0
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		b.lines = bufio.NewReader(resp.Body)
	}
	return b
}

// body passes an answer on.
type body struct {
	call   *Call
	ctx    context.Context
	source io.ReadCloser
	lines  *bufio.Reader // of a stream; nil: the answer is no stream

	line    []byte // of a stream: a line as far as it was read; else the answer as far as it is kept
	ready   []byte // may be passed on
	err     error  // after that
	used    Usage
	counted int64 // tokens of output
	known   bool  // used is what the model has reported
	failed  bool  // the model has not answered
	close   sync.Once
	closed  error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.lines == nil {
		n, err := b.source.Read(p)
		if len(b.line)+n <= maxAnswer {
			b.line = append(b.line, p[:n]...)
		}
		return n, err
	}
	for len(b.ready) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.next()
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// next reads a line of a stream, charges what it has, and lets it pass.
func (b *body) next() {
	b.line = b.line[:0]
	for {
		part, err := b.lines.ReadSlice('\n')
		b.line = append(b.line, part...)
		if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			b.err = err
			break
		}
		if len(b.line) > maxLine {
			b.err = headgate.Invalid("body", "has an event of more than %d bytes", maxLine)
			return
		}
	}
	if data := eventData(b.line); data != nil {
		if bytes.Contains(data, []byte("_tokens")) && b.used.Add(data) {
			b.known = true
		}
		if count := b.call.options.Count; count != nil {
			b.counted += max(0, count(data))
			if err := b.call.Extend(b.ctx, b.counted); err != nil {
				b.err = err
				return
			}
		}
	}
	b.ready = b.line
}

// Close implements io.Closer. The error is that of the body itself: see Options.Failed.
func (b *body) Close() error {
	b.close.Do(func() {
		b.closed = b.source.Close()
		if b.lines == nil {
			b.known = b.used.Add(b.line)
		}
		if err := b.call.Settle(b.ctx, b.usage()); err != nil && b.call.options.Failed != nil {
			b.call.options.Failed(err)
		}
	})
	return b.closed
}

// usage returns what was used, as far as that is known.
func (b *body) usage() Usage {
	charged := b.call.Charged()
	switch {
	case b.failed:
		return Usage{}
	case b.known && (b.lines == nil || errors.Is(b.err, io.EOF)):
		return b.used
	case b.lines == nil || b.call.options.Count == nil:
		return charged
	}
	used := b.used
	used.Output = min(max(used.Output, b.counted), charged.Output) // what was refused has not passed
	return used
}
