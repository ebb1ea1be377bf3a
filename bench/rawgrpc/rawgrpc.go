// Package rawgrpc calls gRPC servers with messages that are written and read by hand, so that no
// cost of a client library is counted against a server.
package rawgrpc

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// Call is a unary call that asks about a key.
type Call struct {
	Method   string // such as /package.Service/Method
	Question func(key string) []byte
	Allowed  func(answer []byte) (bool, error)
}

// Conns are a few connections to a server.
type Conns struct {
	conns []*grpc.ClientConn
	next  atomic.Uint64
}

// MaxConns is how many connections there are for many callers.
const MaxConns = 4

// Dial returns MaxConns connections to an address, or fewer if there are fewer callers.
func Dial(addr string, callers int) (*Conns, error) {
	w := &Conns{}
	for range min(callers, MaxConns) {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{})))
		if err != nil {
			w.Close()
			return nil, err
		}
		w.conns = append(w.conns, c)
	}
	return w, nil
}

// Close closes the connections.
func (w *Conns) Close() {
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// Invoke sends a message, and returns the answer.
func (w *Conns) Invoke(ctx context.Context, method string, question []byte) ([]byte, error) {
	var answer []byte
	err := w.conns[w.next.Add(1)%uint64(len(w.conns))].Invoke(ctx, method, &question, &answer)
	return answer, err
}

// Ask asks about a key.
func (w *Conns) Ask(ctx context.Context, c *Call, key string) (bool, error) {
	answer, err := w.Invoke(ctx, c.Method, c.Question(key))
	if err != nil {
		return false, err
	}
	return c.Allowed(answer)
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

// PutString appends a field of text.
func PutString(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

// PutBytes appends a field of bytes, or of a message.
func PutBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// PutInt appends a field of a number.
func PutInt(b []byte, n protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

// Number returns a field of a message that is a number, and 0 if it is missing.
func Number(message []byte, of protowire.Number) (v uint64, err error) {
	err = Fields(message, func(n protowire.Number, number uint64, _ []byte) {
		if n == of {
			v = number
		}
	})
	return v, err
}

// Fields calls f for every field of a message.
func Fields(message []byte, f func(n protowire.Number, number uint64, text []byte)) error {
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
