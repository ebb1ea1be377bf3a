// Streams calls a gateway by the official clients in Go, many streams at once, until the budget refuses:
//
//	go run . http://localhost:3000 64
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const maxTokens = 2100 // of an answer, in each request; as in streams.mjs

func main() {
	url, callers := os.Args[1], 2
	if len(os.Args) > 2 {
		callers, _ = strconv.Atoi(os.Args[2])
	}
	var answers atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		call := callOpenAI
		if i%2 == 1 {
			call = callAnthropic
		}
		all.Go(func() {
			for {
				status, err := call(context.Background(), url, fmt.Sprint("key-", i))
				switch {
				case status == 429:
					return
				case err != nil:
					log.Fatal(err)
				}
				answers.Add(1)
			}
		})
	}
	all.Wait()
	fmt.Println("answers:", answers.Load())
}

func callOpenAI(ctx context.Context, url, key string) (status int, err error) {
	client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key))
	stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: "gpt-5-mini", MaxTokens: openai.Int(maxTokens),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Tell me a story.")},
	})
	defer stream.Close() //nolint:errcheck // only its answer counts
	for stream.Next() {
		_ = stream.Current()
	}
	if failure := (*openai.Error)(nil); errors.As(stream.Err(), &failure) {
		status = failure.StatusCode
	}
	return status, stream.Err()
}

func callAnthropic(ctx context.Context, url, key string) (status int, err error) {
	client := anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey(key))
	stream := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
		Model: "claude-sonnet-4", MaxTokens: maxTokens,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Tell me a story."))},
	})
	defer stream.Close() //nolint:errcheck // only its answer counts
	for stream.Next() {
		_ = stream.Current()
	}
	if failure := (*anthropic.Error)(nil); errors.As(stream.Err(), &failure) {
		status = failure.StatusCode
	}
	return status, stream.Err()
}
