// Program mcp is a server of the Model Context Protocol whose tools are limited for each caller, with the official SDK
// for Go. HEADGATE_STORE names the store, so that any number of servers share the limits.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/open"
)

// limits has the limits of tools by name. A tool without a limit is not limited.
var limits = map[string]headgate.Limit{
	"search": headgate.MustParseNamed("search", "sliding-log 2/1m"),
}

// limitTools returns a middleware that charges each call of a tool to the tool's limit, with the caller as the key. A
// refusal is a result that a model can read, not an error of the protocol, which only the program around it sees.
func limitTools(l *headgate.Limiter, caller func(mcp.Request) string) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok {
				return next(ctx, method, req)
			}
			limit, ok := limits[call.Params.Name]
			if !ok {
				return next(ctx, method, req)
			}
			d, err := l.Allow(ctx, limit, caller(req))
			if err != nil {
				return nil, err // the call may have been charged; the tool is not called
			}
			if !d.Allowed {
				return refusal(&d), nil
			}
			return next(ctx, method, req)
		}
	}
}

// refusal returns a result that tells an agent how much remains and when to retry, so that it waits or does otherwise.
func refusal(d *headgate.Decision) *mcp.CallToolResult {
	wait := (d.RetryAfter + time.Second - 1).Truncate(time.Second)
	text := fmt.Sprintf("Rate limit: %s allows %d calls, %d are left. Do not call it again before %s have passed.",
		d.LimitName, d.Capacity, d.Remaining, wait)
	retryAfterMS := any(wait.Milliseconds())
	if d.RetryAfter == headgate.Never {
		retryAfterMS = nil
		text = fmt.Sprintf("Rate limit: %s can never be called at this cost. Do not call it again.", d.LimitName)
	}
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: map[string]any{"retry_after_ms": retryAfterMS, "remaining": d.Remaining},
	}
}

// byToken returns the user of the caller's token, or else the session. A client can get a new session at any time.
func byToken(req mcp.Request) string {
	if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil {
		return "user:" + extra.TokenInfo.UserID
	}
	return "session:" + cmp.Or(req.GetSession().ID(), "stdio")
}

func newServer(l *headgate.Limiter) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	s.AddReceivingMiddleware(limitTools(l, byToken))
	type query struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "search", Description: "finds goods"},
		func(_ context.Context, _ *mcp.CallToolRequest, q query) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found " + q.Text}}}, nil, nil
		})
	return s
}

func main() {
	limiter, s, err := open.Limiter(context.Background(), cmp.Or(os.Getenv("HEADGATE_STORE"), "memory:"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	server := newServer(limiter)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	log.Print(http.ListenAndServe("localhost:8787", handler))
}
