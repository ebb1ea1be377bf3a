package gate

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Many is a request on several limits, each with a key of its own.
type Many struct {
	Limits  []headgate.Limit
	Keys    [][]string    // of each limit
	Charged headgate.Cost // of each limit
	IDs     bool          // with an idempotency key, and then settled
	Settled headgate.Cost
}

var runs atomic.Int64

// Ask returns a question with several charges, which returns the numbers of the keys that were
// charged, as if the keys of all limits stood in one list; none if it was refused.
func (m *Many) Ask(s store.Store) func(ctx context.Context, client int, rng *rand.Rand) ([]int, error) {
	limiter := headgate.New(s, &headgate.Config{Timeout: headgate.DefaultTimeout})
	var numbers atomic.Int64
	prefix := strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.FormatInt(runs.Add(1), 36) + "-"
	return func(ctx context.Context, _ int, rng *rand.Rand) ([]int, error) {
		charges := make([]headgate.Charge, len(m.Limits))
		charged := make([]int, len(m.Limits))
		first := 0
		for i := range charges {
			k := rng.IntN(len(m.Keys[i]))
			charged[i] = first + k
			first += len(m.Keys[i])
			charges[i] = headgate.Charge{Limit: m.Limits[i], Key: m.Keys[i][k], Cost: m.Charged}
		}
		if !m.IDs {
			d, err := limiter.Take(ctx, charges...)
			if err != nil || !d.Allowed {
				return nil, err
			}
			return charged, nil
		}
		once := limiter.Once(prefix+strconv.FormatInt(numbers.Add(1), 36), time.Minute)
		d, err := once.Take(ctx, charges...)
		if err != nil || !d.Allowed {
			return nil, err
		}
		for i := range charges {
			charges[i].Cost = m.Settled
		}
		_, err = once.Settle(ctx, charges...)
		return charged, err
	}
}
