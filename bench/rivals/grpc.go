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

// conns are a few connections to a gRPC server for many callers. Messages are encoded by hand, so that the cost of a
// client library does not count against a server.
type conns struct {
	list [4]*grpc.ClientConn
	next atomic.Uint64
}

func dial(addr string) (*conns, error) {
	c := &conns{}
	for i := range c.list {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.list[i] = conn
	}
	return c, nil
}

// invoke sends and receives messages as encoded bytes: as emptypb.Empty whose fields are all unknown.
func (c *conns) invoke(ctx context.Context, method string, request []byte) ([]byte, error) {
	var in, out emptypb.Empty
	in.ProtoReflect().SetUnknown(request)
	err := c.list[c.next.Add(1)%uint64(len(c.list))].Invoke(ctx, method, &in, &out)
	return out.ProtoReflect().GetUnknown(), err
}

// appendField appends a field with a text, bytes or a message.
func appendField[T string | []byte](b []byte, n protowire.Number, v T) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), string(v))
}

func appendInt(b []byte, n protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

func eachField(message []byte, f func(n protowire.Number, number uint64, text []byte)) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeField(message)
		if size < 0 {
			return fmt.Errorf("message: %w", protowire.ParseError(size))
		}
		_, _, tag := protowire.ConsumeTag(message)
		var number uint64
		var text []byte
		switch value := message[tag:size]; kind {
		case protowire.VarintType:
			number, _ = protowire.ConsumeVarint(value)
		case protowire.BytesType:
			text, _ = protowire.ConsumeBytes(value)
		}
		f(n, number, text)
		message = message[size:]
	}
	return nil
}
