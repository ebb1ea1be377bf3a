// Requesttoken limits an action by asking for a token before each call.
//
//	go run ./examples/requesttoken                          # one process
//	go run ./examples/requesttoken -store sqlite:tokens.db  # run it twice: both share the tokens
//
// Five goroutines call the action every second, and two calls a second are allowed: two succeed and three fail, in each
// second. The store keeps the window, so the figures are the same for any number of processes that share the store.
// Processes on several machines share a database.
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
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/open"
)

// callPayments stands for a call to the service that must not be overwhelmed.
func callPayments(context.Context) (string, error) { return "done", nil }

// limit allows two calls a second. Its window begins with the first call.
var limit = headgate.MustParse("fixed-window 2/1s from-first")

func main() {
	url := flag.String("store", "memory:", "URL of the store, such as sqlite:FILE")
	flag.Var(&limit, "limit", "the limit of all calls")
	seconds := flag.Int("seconds", 3, "number of seconds to run for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *url, limit, *seconds)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, url string, limit headgate.Limit, seconds int) error {
	limiter, s, err := open.Limiter(ctx, url, nil) // callers that come at once share statements
	if err != nil {
		return err
	}
	defer s.Close()

	// limitedCall takes a token and then calls callPayments. A headgate.Requester only takes tokens.
	limitedCall := headgate.Limited(limiter, callPayments, headgate.Charge{Limit: limit, Key: "payments"})

	lines := log.New(out, "", 0)
	start := time.Now()
	var calls sync.WaitGroup
	defer calls.Wait()
	for range seconds {
		for range 5 {
			calls.Go(func() {
				result, err := limitedCall(ctx)
				if err != nil && !errors.Is(err, headgate.ErrDenied) {
					err = fmt.Errorf("no answer: %w", err) // the store is away, and nothing was called
				}
				lines.Printf("%4dms -> result: %-4s | error: %v", time.Since(start).Milliseconds(), result, err)
			})
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
