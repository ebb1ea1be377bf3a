package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/headgate/headgate/internal/testing/dbtest"
)

// TestGRPCReflection calls the services as grpcurl does: with the types that the server describes, and JSON.
func TestGRPCReflection(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(envoyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	startReady(t, dir, "--store", "memory:", "--grpc", addr, "--envoy", "edge.yaml")
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const envoyService, headgateService = "envoy.service.ratelimit.v3.RateLimitService", "headgate.v1.HeadgateService"
	const descriptorJSON = `{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]}`
	const chargeJSON = `{"charges": [{"limit": "fixed-window 1/1h from-first", "key": "alice"}]}`
	methods := map[string]protoreflect.MethodDescriptor{}
	for _, service := range []protoreflect.FullName{envoyService, headgateService} {
		d := describeService(ctx, t, conn, service)
		for i := range d.Methods().Len() {
			m := d.Methods().Get(i)
			methods[string(service)+"/"+string(m.Name())] = m
		}
	}
	for i, tt := range []struct{ method, json, field, want string }{
		{envoyService + "/ShouldRateLimit", descriptorJSON, "overall_code", "1"},
		{envoyService + "/ShouldRateLimit", descriptorJSON, "overall_code", "1"},
		{envoyService + "/ShouldRateLimit", descriptorJSON, "overall_code", "1"},
		{envoyService + "/ShouldRateLimit", descriptorJSON, "overall_code", "2"}, // OVER_LIMIT
		{headgateService + "/Take", chargeJSON, "allowed", "true"},
		{headgateService + "/Take", chargeJSON, "allowed", "false"},
		{headgateService + "/Inspect", `{"limit": "fixed-window 1/1h from-first", "key": "alice"}`, "used", "1"},
	} {
		m := methods[tt.method]
		if m == nil {
			t.Fatalf("the server does not describe %s", tt.method)
		}
		in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
		if err := protojson.Unmarshal([]byte(tt.json), in); err != nil {
			t.Fatalf("%s: %v", tt.method, err)
		}
		if err := conn.Invoke(ctx, "/"+tt.method, in, out); err != nil {
			t.Fatalf("%d, %s: %v", i, tt.method, err)
		}
		if got := out.Get(m.Output().Fields().ByName(protoreflect.Name(tt.field))).String(); got != tt.want {
			t.Errorf("%d, %s: %s is %s, want %s", i, tt.method, tt.field, got, tt.want)
		}
	}
}

// describeService returns a server's description of a service, with the types of its messages.
func describeService(
	ctx context.Context, t *testing.T, conn *grpc.ClientConn, name protoreflect.FullName,
) protoreflect.ServiceDescriptor {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: string(name)},
	}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, text := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(text, file); err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, file)
	}
	// The files use only types that the server has sent, not the types of this program.
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	d, err := files.FindDescriptorByName(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d.(protoreflect.ServiceDescriptor)
}
