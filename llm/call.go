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

// Options adjusts a Call. A nil *Options, and every zero field, is fine.
type Options struct {
	// Life is how long the store remembers the id. Zero: headgate.DefaultLife.
	Life time.Duration
	// Count returns the output tokens in the data of an event of a stream, for charges that grow with the stream. It
	// may count too few: the usage that the model reports settles the charge. Nil: the charge does not grow, so the
	// estimate has to include all output tokens that the answer can have.
	Count func(data []byte) int64
	// Step is by how many output tokens a charge grows. Small steps call the store often. If a step does not fit, only
	// the tokens that are needed at once are charged. Zero: 64.
	Step int64
	// MaxOutput is how many output tokens the answer can have, so that the last step charges no more. Zero: not known.
	MaxOutput int64
	// Failed is called with the error if a charge cannot be settled when a body is closed. The charge then stays until
	// its limit forgets it. Nil: the error is lost.
	Failed func(error)
}

const (
	defaultStep = 64
	// maxLine and maxAnswer bound the bytes of a line of a stream, and of an answer that is no stream, that are kept.
	maxLine   = 8 << 20
	maxAnswer = 32 << 20
)

// Limiter makes charges under an id: a *headgate.Limiter, or a *client.Client.
type Limiter interface {
	// Once returns the requests of an id: see headgate.Limiter.Once.
	Once(id string, life time.Duration) headgate.Once
}

// Call is a call of a model that is charged before it begins. It is safe for concurrent use, but its Body is for one
// goroutine.
type Call struct {
	once    headgate.Once
	charges func(Usage) []headgate.Charge
	options Options

	mu      sync.Mutex
	charged Usage // usage that is charged now
	settled bool  // the charges were settled or cancelled
}

// Begin charges an estimate of the usage of a call, under the id of the caller's request. The estimate covers the
// prompt and the output tokens that may come before the charge grows. charges returns the charges for a usage, with the
// same limits and keys each time. If the id was charged before, nothing more is charged, and Decision.Replayed says
// that the call was made before. The Call is nil after a refusal or an error. store.NothingDone reports whether an
// error means that nothing was charged.
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

// Charged returns the usage that is charged now.
func (c *Call) Charged() Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.charged
}

// Extend grows the charge to output tokens of the answer, unless as many are charged already. It charges a step more,
// or if that does not fit, up to output. It returns a *headgate.DeniedError if a limit refuses; then the charge stays.
func (c *Call) Extend(ctx context.Context, output int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if output <= c.charged.Output {
		return nil
	}
	step := c.charged.Output + c.options.Step
	if maxOutput := c.options.MaxOutput; maxOutput > 0 {
		step = min(step, maxOutput)
	}
	for next := c.charged; ; step = 0 { // if a whole step does not fit, try output
		next.Output = max(step, output)
		e, err := c.once.Extend(ctx, c.charges(next)...)
		switch {
		case err != nil:
			return err
		case e.Decision.Allowed:
			c.charged = next
			return nil
		case next.Output == output:
			return &headgate.DeniedError{Decision: e.Decision}
		}
	}
}

// Settle corrects the charges to a usage, up or down. After a success, further calls of Settle and Cancel do nothing;
// after an error they may be repeated.
func (c *Call) Settle(ctx context.Context, used Usage) error {
	return c.end(used, func(charges []headgate.Charge) error {
		_, err := c.once.Settle(ctx, charges...)
		return err
	})
}

// Cancel returns the charges, for a call that did not reach the model. Its id can then be charged again.
func (c *Call) Cancel(ctx context.Context) error {
	return c.end(Usage{}, func(charges []headgate.Charge) error {
		_, err := c.once.Cancel(ctx, charges...)
		return err
	})
}

// end corrects the charges to a usage, unless they were settled or cancelled before.
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

// Body returns the body of a response unchanged, and settles the call when the body is closed, at the usage that the
// model reports. A stream without a report, or not read to its end, settles at the tokens that Options.Count has
// counted. Without Count, and for an answer without a report that is no stream, the charge stays as it was. A response
// with a status of 400 or more has used nothing.
//
// If the charge has to grow with a stream and a limit refuses, Read returns a *headgate.DeniedError instead of the next
// event. The charge is settled even if the context of the request has ended. A compressed body reports nothing:
// net/http decompresses answers, unless the request asks for an encoding itself.
func (c *Call) Body(resp *http.Response) io.ReadCloser {
	ctx := context.Background()
	if resp.Request != nil {
		ctx = context.WithoutCancel(resp.Request.Context())
	}
	b := &body{call: c, ctx: ctx, source: resp.Body, isError: resp.StatusCode >= http.StatusBadRequest}
	b.usage = c.Charged()
	b.usage.Output = 0
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		b.lines = bufio.NewReader(resp.Body)
	}
	return b
}

// body is the body of a response, which settles a call when it is closed.
type body struct {
	call   *Call
	ctx    context.Context
	source io.ReadCloser
	lines  *bufio.Reader // reads the lines of a stream; nil if the answer is no stream

	buffer  []byte // the current line of a stream, or the answer, up to maxAnswer bytes
	pending []byte // part of buffer that Read returns next
	readErr error  // error that Read returns after pending

	usage         Usage // charged input, replaced by the counts that the model reports
	hasReport     bool  // usage has counts of the model
	countedOutput int64 // output tokens that Options.Count has counted
	isError       bool  // the status is 400 or more
	closeOnce     sync.Once
	closeErr      error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.lines == nil {
		n, err := b.source.Read(p)
		if len(b.buffer)+n <= maxAnswer {
			b.buffer = append(b.buffer, p[:n]...)
		}
		return n, err
	}
	for len(b.pending) == 0 {
		if b.readErr != nil {
			return 0, b.readErr
		}
		b.readLine()
	}
	n := copy(p, b.pending)
	b.pending = b.pending[n:]
	return n, nil
}

// readLine reads a line of a stream, charges its tokens, and makes it pending.
func (b *body) readLine() {
	b.buffer = b.buffer[:0]
	for {
		part, err := b.lines.ReadSlice('\n')
		b.buffer = append(b.buffer, part...)
		if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			b.readErr = err
			break
		}
		if len(b.buffer) > maxLine {
			b.readErr = headgate.Invalid("body", "has an event of more than %d bytes", maxLine)
			return
		}
	}
	if data := eventData(b.buffer); data != nil {
		if bytes.Contains(data, []byte("_tokens")) && b.usage.Update(data) {
			b.hasReport = true
		}
		if count := b.call.options.Count; count != nil {
			b.countedOutput += max(0, count(data))
			if err := b.call.Extend(b.ctx, b.countedOutput); err != nil {
				b.readErr = err
				return
			}
		}
	}
	b.pending = b.buffer
}

// Close implements io.Closer. It returns the error of source; Options.Failed gets an error of Settle.
func (b *body) Close() error {
	b.closeOnce.Do(func() {
		b.closeErr = b.source.Close()
		if b.lines == nil {
			b.hasReport = b.usage.Update(b.buffer)
		}
		if err := b.call.Settle(b.ctx, b.finalUsage()); err != nil && b.call.options.Failed != nil {
			b.call.options.Failed(err)
		}
	})
	return b.closeErr
}

// finalUsage returns the usage to settle at.
func (b *body) finalUsage() Usage {
	charged := b.call.Charged()
	switch {
	case b.isError:
		return Usage{}
	case b.hasReport && (b.lines == nil || errors.Is(b.readErr, io.EOF)):
		return b.usage
	case b.lines == nil || b.call.options.Count == nil:
		return charged
	}
	used := b.usage
	used.Output = min(max(used.Output, b.countedOutput), charged.Output) // Read returned no event beyond the charge
	return used
}
