//go:build unix

package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
)

// BenchmarkThroughServer calls a server over TCP in the same process: the figures are of client and server together.
func BenchmarkThroughServer(b *testing.B) {
	for _, bb := range []struct{ callers, connections, keys int }{
		{1, 2, 1000},
		{16, 1, 1000},
		{16, 2, 1000},
		{512, 1, 1000},
		{512, 2, 1000},
		{512, 4, 1000},
		{512, 2, 100_000},
	} {
		b.Run(fmt.Sprintf("callers=%d/connections=%d/keys=%d", bb.callers, bb.connections, bb.keys),
			func(b *testing.B) {
				c := newClientOf(b, newHandler(b), &client.Config{Connections: bb.connections})
				keys := make([]string, bb.keys)
				for i := range keys {
					keys[i] = "user/" + strconv.Itoa(i)
				}
				var calls atomic.Int64
				var callers sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				cpuBefore := cpu(b)
				for range bb.callers {
					callers.Go(func() {
						for calls.Add(1) <= int64(b.N) {
							if _, err := c.Allow(context.Background(), headgate.MustNamed("api"),
								keys[rand.IntN(len(keys))]); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				callers.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
				b.ReportMetric(float64((cpu(b)-cpuBefore).Nanoseconds())/1e3/float64(b.N), "cpu-us/decision")
			})
	}
}

// cpu returns the processor time that this process has taken.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
