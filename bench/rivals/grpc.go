package rivals

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// wire is a few connections to a gRPC server, on which messages are written
// and read by hand: no cost of a client library is counted against it.
type wire struct {
	conns []*grpc.ClientConn
	next  atomic.Uint64
}

const wireConns = 4

func dial(addr string) (*wire, error) {
	w := &wire{}
	for range wireConns {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{})))
		if err != nil {
			w.close()
			return nil, err
		}
		w.conns = append(w.conns, c)
	}
	return w, nil
}

func (w *wire) close() {
	for _, c := range w.conns {
		_ = c.Close()
	}
}

func (w *wire) call(ctx context.Context, method string, question []byte) ([]byte, error) {
	var answer []byte
	err := w.conns[w.next.Add(1)%wireConns].Invoke(ctx, method, &question, &answer)
	return answer, err
}

// codec takes messages as they are.
type codec struct{}

// Name implements encoding.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

// Unmarshal implements encoding.Codec. data is reused after it.
func (codec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func putString(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func putBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

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
		switch kind {
		case protowire.VarintType:
			var v uint64
			if v, size = protowire.ConsumeVarint(message); size >= 0 {
				f(n, v, nil)
			}
		case protowire.BytesType:
			var v []byte
			if v, size = protowire.ConsumeBytes(message); size >= 0 {
				f(n, 0, v)
			}
		default:
			size = protowire.ConsumeFieldValue(n, kind, message)
		}
		if size < 0 {
			return fmt.Errorf("message: %w", protowire.ParseError(size))
		}
		message = message[size:]
	}
	return nil
}
