package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/api/wire"
	"github.com/headgate/headgate/internal/server/service"
)

// maxInFlight is how many requests of one stream may be under way. The next one is read when one is
// answered, so a client is held back by the flow control of its stream.
const maxInFlight = 1000

// asked is a request of a stream, or why there is no further one.
type asked struct {
	request *pb.StreamRequest
	err     error
}

// Stream implements pb.HeadgateServiceServer. Each request is one of its own: its caller is known again,
// it is counted in the load, and it fails alone. When the server stops, requests that it has read are
// answered, and then the stream ends.
func (v *verbs) Stream(stream grpc.BidiStreamingServer[pb.StreamRequest, pb.StreamResponse]) error {
	ctx, cancel := context.WithCancel(service.By(stream.Context(), service.ProtocolGRPC))
	defer cancel()
	var sending sync.Mutex // a stream may be sent to by one goroutine at a time
	var flying sync.WaitGroup
	defer flying.Wait()
	room := make(chan struct{}, maxInFlight)
	requests := make(chan asked)
	go func() {
		for {
			r, err := stream.Recv()
			select {
			case requests <- asked{r, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		var next asked
		select {
		case next = <-requests:
		case <-ctx.Done(): // the reader may have returned because of it
			return ctx.Err()
		case <-v.of.stopping:
			flying.Wait()
			return statusOf(stopped)
		}
		switch {
		case errors.Is(next.err, io.EOF):
			return nil
		case next.err != nil:
			return next.err
		}
		flying.Go(func() {
			answer := v.one(ctx, next.request)
			sending.Lock()
			defer sending.Unlock()
			_ = stream.Send(answer) // else the stream is broken, and its client knows
			<-room
		})
	}
}

// stopped is why a stream ends when the server stops: what was read is answered, and what was not is
// not done.
var stopped = &api.Problem{
	Type: api.Unavailable, Title: "The server stops", Status: 503,
	Detail: "What was read is answered. Of other requests nothing was charged.",
}

// one answers a request of a stream.
func (v *verbs) one(ctx context.Context, r *pb.StreamRequest) (out *pb.StreamResponse) {
	out = &pb.StreamResponse{Id: r.GetId()}
	fail := func(err error, panicked any) {
		told := v.of.problem(ctx, pb.HeadgateService_Stream_FullMethodName, err, panicked)
		out.Result = &pb.StreamResponse_Problem{Problem: wire.To[pb.Problem](told)}
	}
	defer func() {
		if p := recover(); p != nil {
			fail(nil, p)
		}
	}()
	md, _ := metadata.FromIncomingContext(ctx)
	ctx, err := v.of.known(ctx, pb.HeadgateService_Stream_FullMethodName, md)
	if err != nil {
		out.Result = &pb.StreamResponse_Problem{Problem: wire.To[pb.Problem](err)}
		return out
	}
	within := service.Deadline
	if ms := r.GetTimeoutMs(); ms > 0 {
		within = min(within, time.Duration(min(ms, service.Deadline.Milliseconds()))*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := v.decide(ctx, r, out); err != nil {
		fail(err, nil)
	}
	return out
}

// decide puts the answer of a request into out.
func (v *verbs) decide(ctx context.Context, r *pb.StreamRequest, out *pb.StreamResponse) error {
	share := v.of.config.Load.Share()
	defer share.Release()
	if err := (&method{objects: objects}).hold(&share, r); err != nil {
		return err
	}
	var d *pb.Decision
	var err error
	switch verb := r.GetVerb().(type) {
	case *pb.StreamRequest_Take:
		d, err = ask[pb.Decision](ctx, verb.Take, v.of.service.Take)
	case *pb.StreamRequest_Check:
		d, err = ask[pb.Decision](ctx, verb.Check, v.of.service.Check)
	case *pb.StreamRequest_Batch:
		b, err := ask[pb.BatchResponse](ctx, verb.Batch, v.batch)
		out.Result = &pb.StreamResponse_Batch{Batch: b}
		return err
	default:
		return headgate.Invalid("verb", "is missing; there are take, check and batch")
	}
	out.Result = &pb.StreamResponse_Decision{Decision: d}
	return err
}
