package service

import "context"

// Protocol is the one by which a request came, for metrics.
type Protocol uint8

// The protocols.
const (
	ProtocolHTTP  Protocol = iota // JSON over HTTP
	ProtocolGRPC                  // Headgate's own service over gRPC
	ProtocolEnvoy                 // Envoy's rate limit service, over gRPC and over HTTP
	ProtocolRESP                  // the protocol of Redis
	ProtocolAuth                  // forward authentication, for proxies
	ProtocolNone                  // the server asks for itself, to find out whether the store is well
	Protocols     = iota          // how many there are
)

// String returns the name of a protocol.
func (p Protocol) String() string {
	if p >= Protocols {
		return "unknown"
	}
	return [Protocols]string{"http", "grpc", "envoy", "resp", "auth", "none"}[p]
}

type protocolKey struct{}

// protocolContext is a context with a protocol.
type protocolContext struct {
	context.Context
	protocol Protocol
}

// By returns a context for what came by a protocol.
func By(ctx context.Context, p Protocol) context.Context { return &protocolContext{ctx, p} }

// Protocol is for [ProtocolOf].
func (c *protocolContext) Protocol() Protocol { return c.protocol }

// Value implements context.Context.
func (c *protocolContext) Value(key any) any {
	if key == (protocolKey{}) {
		return c.protocol
	}
	return c.Context.Value(key)
}

// ProtocolOf returns the protocol of a context; ProtocolHTTP if it says none. A context that has a method
// Protocol is asked by that, which takes less time.
func ProtocolOf(ctx context.Context) Protocol {
	if c, ok := ctx.(interface{ Protocol() Protocol }); ok {
		return c.Protocol()
	}
	p, _ := ctx.Value(protocolKey{}).(Protocol)
	return p
}
