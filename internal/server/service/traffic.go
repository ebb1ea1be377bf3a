package service

import (
	"context"
	"encoding/json"
	"math"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/traffic"
)

// Observers observe the decisions that the server makes for clients. The server's own requests, which probe the store
// or describe keys, are left out.
type Observers []headgate.Observer

// Decided implements headgate.Observer.
func (list Observers) Decided(ctx context.Context, e headgate.Event) {
	if ProtocolOf(ctx) >= ProtocolInternal {
		return
	}
	for _, o := range list {
		o.Decided(ctx, e)
	}
}

// Crossed implements headgate.CrossingObserver.
func (list Observers) Crossed(ctx context.Context, c headgate.Crossing) {
	for _, o := range list {
		if o, ok := o.(headgate.CrossingObserver); ok {
			o.Crossed(ctx, c)
		}
	}
}

// UseTraffic sets what [Service.Traffic] reads: an observer of the limiter. Call it before the service is used.
func (s *Service) UseTraffic(t *traffic.Traffic) { s.traffic = t }

// Traffic returns the decisions here of the last q.Seconds, at most five minutes, and the keys that have used most or
// were refused most. It calls hold with the number of keys before it reads what they use. It charges nothing.
func (s *Service) Traffic(ctx context.Context, q *api.TrafficQuery, hold func(keys int) error) (*api.Traffic, error) {
	caller := auth.CallerOf(ctx)
	include := func(limit string) bool { return s.checkLimit(caller, limit) == nil }
	if q.Limit != "" {
		l, err := s.existingLimit(ctx, q.Limit)
		if err != nil {
			return nil, err
		}
		include = func(limit string) bool { return limit == l.Name() }
	}
	series, end := s.traffic.Series(q.Seconds, include)
	out := &api.Traffic{At: end.UnixMicro(), Limits: make([]api.LimitTraffic, len(series)), By: q.By}
	for i := range series {
		c := &series[i].Counts
		out.Limits[i] = api.LimitTraffic{
			Limit: series[i].Limit, Admitted: c[traffic.Admitted], Refused: c[traffic.Refused],
			Failed: c[traffic.Failed],
		}
	}
	by := traffic.Refused
	if q.By == api.ByUsed {
		by = traffic.Admitted
	}
	keys := s.traffic.Top(by, q.Top, include)
	if err := hold(len(keys)); err != nil {
		return nil, err
	}
	out.Keys = make([]api.KeyTraffic, len(keys))
	for i := range keys {
		out.Keys[i] = keyTraffic(&keys[i])
	}
	if err := s.addUsage(ctx, out.Keys); err != nil {
		out.Problem = ProblemOf(err)
	}
	return out, nil
}

func keyTraffic(k *traffic.Key) api.KeyTraffic {
	out := api.KeyTraffic{
		Limit: k.Limit, Key: k.Key, Used: decimal(k.Used), Refused: decimal(k.Refused),
		Recent: make([]json.Number, len(k.Recent)),
	}
	for i, n := range k.Recent {
		out.Recent[i] = decimal(n)
	}
	return out
}

// decimal formats an amount, rounded to thousandths.
func decimal(n float64) json.Number {
	return json.Number(strconv.FormatFloat(math.Round(n*1000)/1000, 'f', -1, 64))
}

// addUsage adds to each key what it uses now. It skips keys whose limit cannot be found, such as one that was removed.
func (s *Service) addUsage(ctx context.Context, keys []api.KeyTraffic) error {
	ctx = WithProtocol(ctx, ProtocolInternal)
	var charges []headgate.Charge
	var index []int
	for i := range keys {
		if l, err := s.existingLimit(ctx, keys[i].Limit); err == nil {
			charges, index = append(charges, headgate.Charge{Limit: l, Key: keys[i].Key}), append(index, i)
		}
	}
	if charges == nil {
		return nil
	}
	used, err := s.limiter.UsageOf(ctx, charges)
	for k := range used {
		keys[index[k]].Now = new(limitUsage(&used[k]))
	}
	return err
}
