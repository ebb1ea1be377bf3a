// Package headgatepb is headgate.v1 of gRPC: the messages, the client and the server of the service
// that `headgate serve --grpc` has. It is generated from internal/server/api/proto by `make proto`; what the fields
// mean, their units and defaults stand there.
package headgatepb
