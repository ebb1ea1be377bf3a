package rpc

import (
	"context"
	"crypto/x509"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/service"
)

// tokenMetadata is the metadata for a token beside authorization.
var tokenMetadata = strings.ToLower(auth.TokenHeader)

// admitCall admits a call if its caller has the role of the method, and puts the caller into the context, where
// [auth.CallerOf] finds it. It runs when the headers of a call have come, before any message is read, in the goroutine
// that reads the connection. The deadline of a unary call begins here, so it includes the time until the message has
// arrived. All calls of known methods are counted in arriving until their first message has arrived.
func (s *Server) admitCall(ctx context.Context, info *tap.Info) (context.Context, error) {
	name := info.FullMethodName
	m, known := s.methods[name]
	switch {
	case !known: // grpc answers Unimplemented, and reads no message
		return ctx, nil
	case m.role == auth.RoleAdmin && s.config.NoAdmin:
		return nil, statusOf(service.NotServedProblem(name))
	case m.role != auth.Anyone:
		var p *api.Problem
		if ctx, p = s.authorize(ctx, name, info.Header); p != nil {
			return nil, statusOf(p)
		}
	}
	var err error
	var cancel context.CancelFunc
	if m.unary {
		ctx, cancel = context.WithTimeout(service.WithProtocol(ctx, service.ProtocolGRPC), service.Deadline)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	if ctx, err = s.arriving.add(ctx, cancel, m.role == auth.Anyone); err != nil {
		cancel()
		return nil, statusOf(service.ProblemOf(err))
	}
	return ctx, nil // grpc cancels the parent context when the call ends, which stops the timer too
}

// caller finds the caller of a call by its credentials, see [auth.Tokens.Caller].
func (s *Server) caller(ctx context.Context, md metadata.MD) (*auth.Caller, error) {
	from, _ := peer.FromContext(ctx)
	presented := auth.Credentials{
		Authorization: md["authorization"], Certificate: func() *x509.Certificate { return peerCertificate(from) },
		UnixSocket: from != nil && from.Addr != nil && from.Addr.Network() == "unix",
	}
	if tokens := md[tokenMetadata]; len(tokens) > 0 {
		presented.Token = tokens[0]
	}
	return s.config.Tokens.Tokens().Caller(presented)
}

// authorize puts the caller into the context, or logs and returns that it has not the role of a method. It runs again
// for each request of headgate's own stream, since the caller may meanwhile have lost its token, certificate or role.
func (s *Server) authorize(ctx context.Context, name string, md metadata.MD) (context.Context, *api.Problem) {
	if s.config.Tokens == nil {
		return ctx, nil
	}
	caller, err := s.caller(ctx, md)
	if err == nil {
		err = caller.CheckRole(s.methods[name].role)
	}
	if err != nil {
		remote := ""
		if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
			remote = from.Addr.String()
		}
		s.log.Warn("request refused", "class", "access", "path", name, "remote", remote, "error", err)
		return ctx, service.AccessProblem(err, "the metadata authorization: Bearer, or in "+tokenMetadata)
	}
	return auth.WithCaller(ctx, caller), nil
}

// peerCertificate returns the verified certificate of a peer, or nil.
func peerCertificate(from *peer.Peer) *x509.Certificate {
	if from == nil {
		return nil
	}
	info, _ := from.AuthInfo.(credentials.TLSInfo)
	return auth.VerifiedCertificate(info.State)
}
