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

// TestATool calls a tool three times by the official client: the third result tells the agent to wait.
func TestATool(t *testing.T) {
	there, here := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newServer(headgate.New(memory.New(nil), nil)).Run(ctx, there) }()
	defer func() { cancel(); <-ended }()
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, here, nil)
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
			t.Errorf("call %d: %q, %v", i, text, result.IsError)
		}
		t.Log(text)
	}
}
