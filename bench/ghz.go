package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/bojand/ghz/runner"
	"github.com/jhump/protoreflect/desc"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/rawgrpc"
)

// byGHZ measures a call by ghz. ghz is told no field of the messages: it copies them, which costs it the same
// beside all servers. It does not look at what is decided.
func byGHZ(addr string, call *rawgrpc.Call, callers int, keys []string) func(context.Context, time.Duration) (
	compare.Sample, error,
) {
	return func(ctx context.Context, d time.Duration) (s compare.Sample, err error) {
		warm, err := runGHZ(addr, call, callers, keys, d/5)
		if err != nil {
			return s, err
		}
		r, err := runGHZ(addr, call, callers, keys, d)
		if err != nil {
			return s, err
		}
		s.Asked, s.Decisions = int64(r.Count), float64(r.Count+warm.Count)
		for text, n := range r.ErrorDist {
			s.Failed += int64(n)
			s.FirstError = errors.New(text)
		}
		s.Value = float64(s.Asked-s.Failed) / r.Total.Seconds()
		for _, l := range r.LatencyDistribution {
			switch l.Percentage {
			case 50:
				s.P50 = l.Latency
			case 99:
				s.P99 = l.Latency
			}
		}
		return s, ctx.Err()
	}
}

func runGHZ(addr string, call *rawgrpc.Call, callers int, keys []string, d time.Duration) (*runner.Report, error) {
	protocol, err := protocolOf(call.Method)
	if err != nil {
		return nil, err
	}
	defer os.Remove(protocol)
	return runner.Run(strings.TrimPrefix(call.Method, "/"), addr,
		runner.WithProtoFile(protocol, nil), runner.WithInsecure(true),
		runner.WithConcurrency(uint(callers)), runner.WithConnections(uint(min(callers, rawgrpc.MaxConns))),
		runner.WithCPUs(uint(runtime.GOMAXPROCS(0))),
		runner.WithRunDuration(d), runner.WithDurationStopAction("wait"),
		runner.WithDisableTemplateFuncs(true), runner.WithDisableTemplateData(true),
		runner.WithBinaryDataFunc(func(*desc.MethodDescriptor, *runner.CallData) []byte {
			return call.Question(keys[rand.IntN(len(keys))])
		}))
}

// protocolOf writes a description of a method whose messages have no fields that are known.
func protocolOf(method string) (file string, err error) {
	f, err := os.CreateTemp("", "headgate-bench-*.proto")
	if err != nil {
		return "", err
	}
	service, name := path.Split(strings.TrimPrefix(method, "/"))
	dot := strings.LastIndex(service, ".")
	fmt.Fprintf(f, "syntax = \"proto3\";\npackage %s;\nmessage Message {}\n"+
		"service %s { rpc %s(Message) returns (Message); }\n",
		service[:dot], strings.TrimSuffix(service[dot+1:], "/"), name)
	return f.Name(), f.Close()
}
