// Jobs shows background jobs that pace themselves, and inserts that cost their number of rows.
//
//	go run ./examples/jobs                        # one process
//	go run ./examples/jobs -store sqlite:jobs.db  # run it twice: both share the limits
//
// The first part is a loop that calls another service: 30 calls at once, then ten a second. The second part accepts
// batches of rows: 10,000 rows at once, then 1,000 a second. A batch that does not fit now is refused with the time at
// which it fits. A batch that can never fit is refused for good.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/open"
)

var (
	calls = headgate.MustParseNamed("calls", "leaky-bucket 10/s capacity 30")
	rows  = headgate.MustParseNamed("rows", "leaky-bucket 1000/s capacity 10000")
)

// errTooLarge means that a batch has more rows than the limit ever admits at once.
var errTooLarge = errors.New("too many rows at once")

// pay calls another service n times, 1 or more, as fast as the limit allows. Pace waits before each iteration. The
// waiting callers of all processes start one after another.
func pay(ctx context.Context, limiter *headgate.Limiter, n int, call func(i int)) error {
	charge := headgate.Charge{Limit: calls, Key: "payments"}
	for i, err := range headgate.Pace(ctx, limiter, charge) {
		if err != nil {
			return err // the context has ended, or the store is away
		}
		call(i)
		if i == n-1 {
			break
		}
	}
	return nil
}

// insert inserts a batch, which costs its number of rows. The batch is admitted as a whole, or refused and not charged.
func insert(ctx context.Context, limiter *headgate.Limiter, user string, batch []string, table *[]string) error {
	cost := headgate.Units(int64(len(batch)))
	d, err := limiter.Take(ctx, headgate.Charge{Limit: rows, Key: user, Cost: cost})
	switch {
	case err != nil:
		return err
	case d.RetryAfter == headgate.Never:
		return errTooLarge // a web server answers 413
	case !d.Allowed:
		return &headgate.DeniedError{Decision: d} // a web server answers 429 with Retry-After
	}
	*table = append(*table, batch...)
	return nil
}

func main() {
	url := flag.String("store", "memory:", "URL of the store, such as sqlite:FILE")
	n := flag.Int("calls", 50, "number of calls of the first part")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *url, *n)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, url string, n int) error {
	limiter, s, err := open.Limiter(ctx, url, nil) // callers that come at once share statements
	if err != nil {
		return err
	}
	defer s.Close()

	start := time.Now()
	err = pay(ctx, limiter, n, func(i int) {
		if i%10 == 9 {
			fmt.Fprintf(out, "%.1fs: call %d\n", time.Since(start).Seconds(), i+1)
		}
	})
	if err != nil {
		return err
	}

	var table []string
	for _, size := range []int{4000, 6000, 2000, 12000} {
		err := insert(ctx, limiter, "alice", make([]string, size), &table)
		if err != nil && !errors.Is(err, headgate.ErrDenied) && !errors.Is(err, errTooLarge) {
			return err
		}
		fmt.Fprintf(out, "insert of %d rows: %v\n", size, err)
	}
	fmt.Fprintf(out, "the table has %d rows\n", len(table))
	return nil
}
