package service

import "context"

// Protocol is the protocol of a request, for metrics.
type Protocol uint8

// The protocols.
const (
	ProtocolHTTP  Protocol = iota // JSON over HTTP
	ProtocolGRPC                  // Headgate's own service over gRPC
	ProtocolEnvoy                 // Envoy's rate limit service, over gRPC and over HTTP
	ProtocolRESP                  // the protocol of Redis
	ProtocolAuth                  // forward authentication, for proxies
	ProtocolNone                  // the server's own requests, such as probes of the store
	Protocols     = iota          // number of protocols
)

// String returns the name of a protocol.
func (p Protocol) String() string {
	if p >= Protocols {
		return "unknown"
	}
	return [Protocols]string{"http", "grpc", "envoy", "resp", "auth", "none"}[p]
}

type protocolKey struct{}

// WithProtocol returns a context for a request of a protocol.
func WithProtocol(ctx context.Context, p Protocol) context.Context {
	return context.WithValue(ctx, protocolKey{}, p)
}

// ProtocolOf returns the protocol of a context, or ProtocolHTTP if it has none.
func ProtocolOf(ctx context.Context) Protocol {
	p, _ := ctx.Value(protocolKey{}).(Protocol)
	return p
}
