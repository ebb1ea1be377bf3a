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
	ProtocolNone                  // the server itself, to find out whether the store is well
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

// By returns a context for what came by a protocol.
func By(ctx context.Context, p Protocol) context.Context {
	return context.WithValue(ctx, protocolKey{}, p)
}

// ProtocolOf returns the protocol of a context; ProtocolHTTP if it says none.
func ProtocolOf(ctx context.Context) Protocol {
	p, _ := ctx.Value(protocolKey{}).(Protocol)
	return p
}
