package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/server/service"
)

// health reports whether the store can decide and write, as /readyz does. The status is the same for all services.
type health struct {
	healthpb.UnimplementedHealthServer
	server *Server
}

// state returns the status, after a trial of the store.
func (h *health) state(ctx context.Context) healthpb.HealthCheckResponse_ServingStatus {
	select {
	case <-h.server.stopping:
		return healthpb.HealthCheckResponse_NOT_SERVING
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, service.ReadyTimeout)
	defer cancel()
	if h.server.service.Healthy(ctx) != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

// Check implements grpc.health.v1.Health.
func (h *health) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !h.server.services[r.GetService()] {
		return nil, status.Errorf(codes.NotFound, "there is no service %.100q", r.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: h.state(ctx)}, nil
}

// List implements grpc.health.v1.Health.
func (h *health) List(ctx context.Context, _ *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	state := h.state(ctx)
	out := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{}}
	for name := range h.server.services {
		out.Statuses[name] = &healthpb.HealthCheckResponse{Status: state}
	}
	return out, nil
}

// Watch implements grpc.health.v1.Health. It ends when the server stops.
func (h *health) Watch(
	r *healthpb.HealthCheckRequest, out grpc.ServerStreamingServer[healthpb.HealthCheckResponse],
) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	lastSent := healthpb.HealthCheckResponse_UNKNOWN
	for {
		now := healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		if h.server.services[r.GetService()] {
			now = h.state(out.Context())
		}
		if now != lastSent {
			if err := out.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			lastSent = now
		}
		select {
		case <-h.server.stopping:
			if lastSent != healthpb.HealthCheckResponse_NOT_SERVING {
				_ = out.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING})
			}
			return status.Error(codes.Unavailable, "the server stops")
		case <-out.Context().Done():
			return out.Context().Err()
		case <-ticker.C:
		}
	}
}
