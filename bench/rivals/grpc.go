package rivals

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// conns are a few connections to a gRPC server for many callers. Messages are written and read by hand, so that no
// cost of a client library is counted against a server.
type conns struct {
	all  [4]*grpc.ClientConn
	next atomic.Uint64
}

func dial(addr string) (*conns, error) {
	c := &conns{}
	for i := range c.all {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.all[i] = conn
	}
	return c, nil
}

func (c *conns) close() {
	for _, conn := range c.all {
		_ = conn.Close()
	}
}

// invoke sends and receives messages of which no field is known: such a message is the bytes that it consists of.
func (c *conns) invoke(ctx context.Context, method string, question []byte) ([]byte, error) {
	var in, out emptypb.Empty
	in.ProtoReflect().SetUnknown(question)
	err := c.all[c.next.Add(1)%uint64(len(c.all))].Invoke(ctx, method, &in, &out)
	return out.ProtoReflect().GetUnknown(), err
}

// put appends a field of text, of bytes or of a message.
func put[T string | []byte](b []byte, n protowire.Number, v T) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), string(v))
}

// putInt appends a field of a number.
func putInt(b []byte, n protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

// fields calls f for every field of a message.
func fields(message []byte, f func(n protowire.Number, number uint64, text []byte)) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return fmt.Errorf("message: %w", protowire.ParseError(size))
		}
		message = message[size:]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(n, kind, message)
		}
		if size < 0 {
			return fmt.Errorf("message: %w", protowire.ParseError(size))
		}
		f(n, number, text)
		message = message[size:]
	}
	return nil
}
