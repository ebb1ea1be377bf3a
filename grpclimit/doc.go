// Package grpclimit limits the calls that a gRPC server answers, and those that a gRPC client sends, by interceptors.
//
// # Incoming calls
//
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(grpclimit.UnaryServer(limiter, limit, grpclimit.ByPeer)),
//		grpc.StreamInterceptor(grpclimit.StreamServer(limiter, limit, grpclimit.ByPeer)),
//	)
//
// [UnaryServer] and [StreamServer] charge each call to its peer's address, or to the key of another [KeyFunc]. A
// stream is charged once, when it starts. [NewServer] takes several charges, limits for some methods, costs, and
// charges for each message of a stream.
//
// A call that a limit refuses ends with the code RESOURCE_EXHAUSTED, a google.rpc.QuotaFailure that names the limits
// that refuse, and a google.rpc.RetryInfo that says when the call can pass. RetryInfo is missing if the call can
// never pass. Names of limits are in the answers, keys are not.
//
// The metadata has the fields ratelimit and ratelimit-policy, with the values of [httplimit.SetHeader], in the header
// of a served call, and in the trailer of a refused call. A refusal also has retry-after, with the value of
// [httplimit.SetRetryAfter], and grpc-retry-pushback-ms, of [httplimit.PushbackMillis]. A client with a retry policy
// for RESOURCE_EXHAUSTED sends the call again when it can pass, unless the wait is above a minute.
//
// # Outgoing calls
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithUnaryInterceptor(grpclimit.UnaryClient(limiter, limit, grpclimit.ByTarget)),
//		grpc.WithStreamInterceptor(grpclimit.StreamClient(limiter, limit, grpclimit.ByTarget)),
//	)
//
// [UnaryClient] and [StreamClient] charge each call before it is sent, and wait for room until the deadline of its
// context. A call that cannot start in time is not sent, and ends at once with RESOURCE_EXHAUSTED; the error is a
// [headgate.DeniedError] too. [NewClient] takes a longest wait and costs.
//
// If the server ends a call with RESOURCE_EXHAUSTED or UNAVAILABLE and a RetryInfo, the key is blocked in the store
// for that delay. So all clients that share the store hold back, also those that wait for their start. A status
// without RetryInfo blocks nothing.
//
// gRPC applies the retry policy of a service below the interceptors, so its retries are not charged.
//
// # Health and reflection
//
// Calls of grpc.health.v1.Health and of grpc.reflection are not charged: a probe that is refused looks like a server
// that is down. To charge them, name their methods in [Charge].Methods or [ClientConfig].Methods.
package grpclimit
