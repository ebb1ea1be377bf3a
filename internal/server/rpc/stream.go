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

// maxInFlight bounds the requests under way in a stream. Further requests are not read until one is answered, so flow
// control holds back the client.
const maxInFlight = 1000

// receivedRequest is a request of a stream, or the error that ended it.
type receivedRequest struct {
	request *pb.StreamRequest
	err     error
}

// Stream implements pb.HeadgateServiceServer. It authorizes each request again and counts it in the load; a request
// fails alone. When the server stops, the stream ends after the answers to all requests that were read.
func (v *verbs) Stream(stream grpc.BidiStreamingServer[pb.StreamRequest, pb.StreamResponse]) error {
	ctx, cancel := context.WithCancel(service.WithProtocol(stream.Context(), service.ProtocolGRPC))
	defer cancel()
	var sendMu sync.Mutex // only one goroutine may send at a time
	var inFlight sync.WaitGroup
	defer inFlight.Wait()
	slots := make(chan struct{}, maxInFlight)
	requests := make(chan receivedRequest)
	go func() {
		for {
			r, err := stream.Recv()
			select {
			case requests <- receivedRequest{r, err}:
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
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		var next receivedRequest
		select {
		case next = <-requests:
		case <-ctx.Done(): // the reader may have returned for the same reason
			return ctx.Err()
		case <-v.server.stopping:
			inFlight.Wait()
			return statusOf(stoppingProblem)
		}
		switch {
		case errors.Is(next.err, io.EOF):
			return nil
		case next.err != nil:
			return next.err
		}
		inFlight.Go(func() {
			answer := v.serveRequest(ctx, next.request)
			sendMu.Lock()
			defer sendMu.Unlock()
			_ = stream.Send(answer) // it fails only if the stream is broken, which the client sees
			<-slots
		})
	}
}

var stoppingProblem = &api.Problem{
	Type: api.Unavailable, Title: "The server stops", Status: 503,
	Detail: "What was read is answered. Of other requests nothing was charged.",
}

// serveRequest answers a request of a stream. An error or a panic fails this request only.
func (v *verbs) serveRequest(ctx context.Context, r *pb.StreamRequest) (out *pb.StreamResponse) {
	out = &pb.StreamResponse{Id: r.GetId()}
	fail := func(err error, panicked any) {
		problem := v.server.problem(ctx, pb.HeadgateService_Stream_FullMethodName, err, panicked)
		out.Result = &pb.StreamResponse_Problem{Problem: wire.ToMessage[pb.Problem](problem)}
	}
	defer func() {
		if p := recover(); p != nil {
			fail(nil, p)
		}
	}()
	md, _ := metadata.FromIncomingContext(ctx)
	ctx, err := v.server.authorize(ctx, pb.HeadgateService_Stream_FullMethodName, md)
	if err != nil {
		out.Result = &pb.StreamResponse_Problem{Problem: wire.ToMessage[pb.Problem](err)}
		return out
	}
	timeout := service.Deadline
	if ms := r.GetTimeoutMs(); ms > 0 {
		timeout = min(timeout, time.Duration(min(ms, service.Deadline.Milliseconds()))*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := v.decide(ctx, r, out); err != nil {
		fail(err, nil)
	}
	return out
}

// decide decides a request within the bounds of the load, and sets the result in out.
func (v *verbs) decide(ctx context.Context, r *pb.StreamRequest, out *pb.StreamResponse) error {
	share := v.server.config.Load.Share()
	defer share.Release()
	if err := (&method{objects: objectsOf}).hold(&share, r); err != nil {
		return err
	}
	var d *pb.Decision
	var err error
	switch verb := r.GetVerb().(type) {
	case *pb.StreamRequest_Take:
		d, err = invoke[pb.Decision](ctx, verb.Take, v.server.service.Take)
	case *pb.StreamRequest_Check:
		d, err = invoke[pb.Decision](ctx, verb.Check, v.server.service.Check)
	case *pb.StreamRequest_Batch:
		b, err := invoke[pb.BatchResponse](ctx, verb.Batch, v.batch)
		out.Result = &pb.StreamResponse_Batch{Batch: b}
		return err
	default:
		return headgate.Invalid("verb", "is missing; there are take, check and batch")
	}
	out.Result = &pb.StreamResponse_Decision{Decision: d}
	return err
}
