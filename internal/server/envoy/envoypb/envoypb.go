// Package envoypb has the messages of Envoy's rate limit service and of xDS that Headgate reads and writes.
//
// They are those of go-control-plane, byte for byte on the wire, without the messages, rules and options that nothing
// here asks for: it takes 8 s of CPU to compile the packages of go-control-plane, and 0.3 s to compile this one.
// They are registered here and not in the registry of all messages, which has room for one of each name. So a program
// may link both.
package envoypb

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

//go:generate go run gen/main.go

// Files describes the messages and services of this package, and those of the registry of all.
var Files = &registry{}

var types = &protoregistry.Types{}

// registry finds what is not its own among those of all.
type registry struct{ protoregistry.Files }

// FindFileByPath implements protodesc.Resolver.
func (r *registry) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if d, err := r.Files.FindFileByPath(path); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (r *registry) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := r.Files.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

// RateLimitServiceServer serves Envoy's rate limit service.
type RateLimitServiceServer interface {
	// ShouldRateLimit decides a request. An error is the status of the call; a refusal is none.
	ShouldRateLimit(ctx context.Context, q *RateLimitRequest) (*RateLimitResponse, error)
}

// ShouldRateLimit is the full name of the method of the rate limit service.
const ShouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// RateLimitService is the rate limit service, for a server of gRPC.
var RateLimitService = grpc.ServiceDesc{
	ServiceName: "envoy.service.ratelimit.v3.RateLimitService",
	HandlerType: (*RateLimitServiceServer)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
	Metadata:    "envoy/service/ratelimit/v3/rls.proto",
}

func shouldRateLimit(impl any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (
	any, error,
) {
	in := new(RateLimitRequest)
	if err := decode(in); err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, in any) (any, error) {
		return impl.(RateLimitServiceServer).ShouldRateLimit(ctx, in.(*RateLimitRequest))
	}
	if through == nil {
		return ask(ctx, in)
	}
	return through(ctx, in, &grpc.UnaryServerInfo{Server: impl, FullMethod: ShouldRateLimit}, ask)
}

// StreamAggregatedResources asks a server of xDS for its resources.
func StreamAggregatedResources(ctx context.Context, conn *grpc.ClientConn) (
	grpc.BidiStreamingClient[DiscoveryRequest, DiscoveryResponse], error,
) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources")
	if err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[DiscoveryRequest, DiscoveryResponse]{ClientStream: stream}, nil
}
