package headgate_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// BenchmarkAllow measures a decision in memory through the public API.
func BenchmarkAllow(b *testing.B) {
	for _, keyCount := range []int{1, 1000} {
		keys := make([]string, keyCount)
		for i := range keys {
			keys[i] = "user:" + strconv.Itoa(i)
		}
		for name, notation := range map[string]string{
			"allow":  "token-bucket 1000000000/h",
			"refuse": "token-bucket 1/1d",
		} {
			limit := headgate.MustParse(notation)
			b.Run(strconv.Itoa(keyCount)+"/"+name, func(b *testing.B) {
				l := headgate.New(memory.New(nil), nil)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					ctx := context.Background()
					for i := 0; pb.Next(); i++ {
						_, _ = l.Allow(ctx, limit, keys[i%keyCount])
					}
				})
			})
		}
	}
}

// BenchmarkTake measures a request of two charges. The Limiter sets a deadline for each call of a store that is not
// local: that deadline is the difference between "elsewhere" and "local".
func BenchmarkTake(b *testing.B) {
	user, org := headgate.MustParse("token-bucket 1000000000/h"), headgate.MustParse("gcra 1000000000/h")
	for name, s := range map[string]store.Store{
		"local":     memory.New(nil),
		"elsewhere": struct{ store.Store }{memory.New(nil)},
	} {
		b.Run(name, func(b *testing.B) {
			l := headgate.New(s, nil)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Take(b.Context(), headgate.Charge{Limit: user, Key: "alice"},
					headgate.Charge{Limit: org, Key: "acme"})
			}
		})
	}
}
