package gate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/rawgrpc"
	"github.com/headgate/headgate/internal/load"
	pb "github.com/headgate/headgate/server/api/headgatepb"
)

// TakeCall is the unary call Take.
func TakeCall(limit headgate.Limit) *rawgrpc.Call {
	return &rawgrpc.Call{
		Method: pb.HeadgateService_Take_FullMethodName,
		Question: func(key string) []byte {
			text, err := proto.Marshal(request(limit, key))
			if err != nil {
				panic(err) // a key that is no text
			}
			return text
		},
		Allowed: func(answer []byte) (bool, error) {
			allowed, err := rawgrpc.Number(answer, 1)
			return allowed == 1, err
		},
	}
}

func request(limit headgate.Limit, key string) *pb.Request {
	return &pb.Request{Charges: []*pb.Charge{{Limit: limit.String(), Key: proto.String(key)}}}
}

// Streams are a few streams to a server, each on a connection of its own, which many callers share.
type Streams struct {
	conns   []*grpc.ClientConn
	streams []*stream
}

type stream struct {
	grpc    pb.HeadgateService_StreamClient
	mu      sync.Mutex
	id      uint64
	waiting map[uint64]chan *pb.StreamResponse // closed when the stream has ended; nil then
}

// DialStreams opens streams to an address.
func DialStreams(ctx context.Context, addr string) (*Streams, error) {
	s := &Streams{}
	for range rawgrpc.MaxConns {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			s.Close()
			return nil, err
		}
		s.conns = append(s.conns, conn)
		one, err := pb.NewHeadgateServiceClient(conn).Stream(context.WithoutCancel(ctx))
		if err != nil {
			s.Close()
			return nil, err
		}
		st := &stream{grpc: one, waiting: map[uint64]chan *pb.StreamResponse{}}
		s.streams = append(s.streams, st)
		go st.read()
	}
	return s, nil
}

// Close ends the streams.
func (s *Streams) Close() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// read passes each answer to the caller that waits for it. It returns when the stream ends.
func (s *stream) read() {
	for {
		r, err := s.grpc.Recv()
		s.mu.Lock()
		if err != nil {
			for _, c := range s.waiting {
				close(c)
			}
			s.waiting = nil
			s.mu.Unlock()
			return
		}
		s.waiting[r.GetId()] <- r
		delete(s.waiting, r.GetId())
		s.mu.Unlock()
	}
}

var errEnded = errors.New("gate: the stream has ended")

// ask sends one request, and returns its answer.
func (s *stream) ask(r *pb.StreamRequest) (*pb.StreamResponse, error) {
	answer := make(chan *pb.StreamResponse, 1)
	s.mu.Lock()
	if s.waiting == nil {
		s.mu.Unlock()
		return nil, errEnded
	}
	s.id++
	r.Id = s.id
	s.waiting[r.Id] = answer
	err := s.grpc.Send(r)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	a, ok := <-answer
	if !ok {
		return nil, errEnded
	}
	if p := a.GetProblem(); p != nil {
		return nil, errors.New(p.GetDetail())
	}
	return a, nil
}

// AskStream returns a question to a server about keys at random: one Take in a message, or a batch of many.
func AskStream(s *Streams, limit headgate.Limit, keys []string, batch int) load.Ask {
	return func(_ context.Context, client int, rng *rand.Rand) (bool, error) {
		one := s.streams[client%len(s.streams)]
		if batch == 1 {
			take := request(limit, keys[rng.IntN(len(keys))])
			a, err := one.ask(&pb.StreamRequest{Verb: &pb.StreamRequest_Take{Take: take}})
			return a.GetDecision().GetAllowed(), err
		}
		b := &pb.BatchRequest{Requests: make([]*pb.Request, batch)}
		for i := range b.Requests {
			b.Requests[i] = request(limit, keys[rng.IntN(len(keys))])
		}
		a, err := one.ask(&pb.StreamRequest{Verb: &pb.StreamRequest_Batch{Batch: b}})
		if err != nil {
			return false, err
		}
		if n := len(a.GetBatch().GetAnswers()); n != batch {
			return false, errors.New("gate: answers of a batch are missing")
		}
		allowed := true
		for _, answer := range a.GetBatch().GetAnswers() {
			if p := answer.GetProblem(); p != nil {
				return false, errors.New(p.GetDetail())
			}
			allowed = allowed && answer.GetDecision().GetAllowed()
		}
		return allowed, nil
	}
}
