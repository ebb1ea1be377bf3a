package rpc

import (
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/store"
)

// objectsIn counts the objects in a decoded message.
func objectsIn(m protoreflect.Message) (n int) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList():
			n += v.List().Len()
			for i := range v.List().Len() {
				if f.Message() != nil {
					n += objectsIn(v.List().Get(i).Message())
				}
			}
		case f.IsMap():
			n += v.Map().Len()
		case f.Message() != nil:
			n += 1 + objectsIn(v.Message())
		}
		return true
	})
	return n
}

// FuzzCount checks that a decoded message has no more objects than countObjects counts in its bytes.
func FuzzCount(f *testing.F) {
	key := "k"
	charge := &pb.Charge{Limit: "l", Key: &key}
	for _, m := range []proto.Message{
		&pb.BatchRequest{Requests: []*pb.Request{{Charges: []*pb.Charge{charge, {}}}, {}}},
		&pb.StreamRequest{Verb: &pb.StreamRequest_Take{Take: &pb.Request{Charges: []*pb.Charge{charge}}}},
		&pb.ObserveRequest{Headers: map[string]string{"a": "b", "": ""}},
		&pb.UsageRequest{Limits: []string{"", "a"}},
		&rls.RateLimitRequest{Domain: "d"},
	} {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range []proto.Message{
			&pb.BatchRequest{}, &pb.StreamRequest{}, &pb.ObserveRequest{}, &pb.UsageRequest{}, &rls.RateLimitRequest{},
		} {
			budget := maxObjects
			err := countObjects(text, m.ProtoReflect().Descriptor(), &budget, 0)
			if err != nil && len(text) <= 2*maxObjects && budget < 0 {
				t.Fatalf("%d bytes have too many objects: %v", len(text), err)
			}
			if err != nil || proto.Unmarshal(text, m) != nil {
				continue
			}
			if got, counted := objectsIn(m.ProtoReflect()), maxObjects-budget; got > counted {
				t.Fatalf("%T has %d objects, of which %d were counted", m, got, counted)
			}
		}
	})
}

// TestListCellsCountsItsAnswer checks the memory, in charges, that a request for cells holds: also if it does not say
// how many it wants.
func TestListCellsCountsItsAnswer(t *testing.T) {
	t.Parallel()
	for most, want := range map[int64]int{0: 2 * store.DefaultMax, -1: 2 * store.DefaultMax, 5: 10, 1 << 40: 20_000} {
		if got := objectsOf(&pb.ListCellsRequest{Max: most}); got != want {
			t.Errorf("max %d: got %d, want %d", most, got, want)
		}
	}
}
