// Command plaingrpc is what a server over gRPC costs that decides nothing: a server of grpc without options that
// reads the message of each Take, and answers all of them with the decision that it is given.
package main

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/headgate/headgate/server/api/headgatepb"
)

type echo struct {
	pb.UnimplementedHeadgateServiceServer
	answer *pb.Decision
}

// Take implements pb.HeadgateServiceServer.
func (e *echo) Take(context.Context, *pb.Request) (*pb.Decision, error) { return e.answer, nil }

func main() {
	addr := flag.String("addr", "", "address to listen on")
	text := flag.String("answer", "", "bytes of all answers, in base64")
	flag.Parse()
	if err := serve(*addr, *text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(addr, text string) error {
	bytes, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	e := &echo{answer: &pb.Decision{}}
	if err := proto.Unmarshal(bytes, e.answer); err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pb.RegisterHeadgateServiceServer(server, e)
	return server.Serve(l)
}
