package service

import "context"

// Protocol is the protocol by which a request arrived. Metrics, logs and traces have its name.
type Protocol uint8

// The protocols.
const (
	ProtocolHTTP     Protocol = iota // JSON over HTTP
	ProtocolGRPC                     // Headgate's own service over gRPC
	ProtocolEnvoy                    // Envoy's rate limit service, over gRPC and over HTTP
	ProtocolRESP                     // the protocol of Redis
	ProtocolAuth                     // forward authentication, for proxies
	ProtocolInternal                 // requests of the server itself, such as probes of the store
	ProtocolCount    = iota          // number of protocols
)

// String returns the name of a protocol, which is a value of a label in metrics.
func (p Protocol) String() string {
	if p >= ProtocolCount {
		return "unknown"
	}
	return [ProtocolCount]string{"http", "grpc", "envoy", "resp", "auth", "none"}[p]
}

type protocolKey struct{}

// WithProtocol returns a context from which [ProtocolOf] returns p.
func WithProtocol(ctx context.Context, p Protocol) context.Context {
	return context.WithValue(ctx, protocolKey{}, p)
}

// ProtocolOf returns the protocol that [WithProtocol] put into a context, or ProtocolHTTP.
func ProtocolOf(ctx context.Context) Protocol {
	p, _ := ctx.Value(protocolKey{}).(Protocol)
	return p
}
