package main

import (
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestToolCallsAreLimited calls a tool three times by the official client. The third result tells the agent to wait.
func TestToolCallsAreLimited(t *testing.T) {
	serverTransport, clientTransport := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	runErr := make(chan error, 1)
	go func() { runErr <- newServer(headgate.New(memory.New(nil), nil)).Run(ctx, serverTransport) }()
	defer func() { cancel(); <-runErr }()
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, clientTransport, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for i := range 3 {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: map[string]any{"text": "tea"}})
		if err != nil {
			t.Fatal(err)
		}
		text := result.Content[0].(*mcp.TextContent).Text
		want := "found tea"
		if i == 2 {
			want = "Rate limit: search allows 2 calls, 0 are left. Do not call it again before 1m0s have passed."
		}
		if !strings.HasPrefix(text, want) || result.IsError != (i == 2) {
			t.Errorf("call %d: got %q, error %v, want %q", i, text, result.IsError, want)
		}
		t.Log(text)
	}
}
