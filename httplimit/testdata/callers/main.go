// Callers URL WAIT... sends one request by each client of Go, with the client's own settings, to each
// URL/CLIENT/WAIT/FIELDS, all at the same time. After 11.5 s, when ten seconds are over and none of the clients' timers
// is near, it prints what each of the callers has got.
package main

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
)

var clients = []struct {
	module string
	ask    func(ctx context.Context, url string) error
}{
	{"github.com/openai/openai-go/v3", func(ctx context.Context, url string) error {
		c := openai.NewClient(openaioption.WithBaseURL(url), openaioption.WithAPIKey("k"))
		_, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
		})
		return err
	}},
	{"github.com/anthropics/anthropic-sdk-go", func(ctx context.Context, url string) error {
		c := anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("k"))
		_, err := c.Messages.New(ctx, anthropic.MessageNewParams{
			Model: "m", MaxTokens: 9,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
		})
		return err
	}},
	{"github.com/hashicorp/go-retryablehttp", func(ctx context.Context, url string) error {
		c := retryablehttp.NewClient()
		c.Logger = nil
		req, err := retryablehttp.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}},
}

type outcome struct {
	Client string `json:"client"`
	Wait   string `json:"wait"`
	Fields string `json:"fields"`
	Path   string `json:"path"`
	Got    string `json:"got"`
}

func main() {
	ctx, cancel := context.WithCancel(context.Background()) // without a deadline, by which some give up at once
	time.AfterFunc(11500*time.Millisecond, cancel)
	var outcomes []*outcome
	var all sync.WaitGroup
	for _, c := range clients {
		for _, wait := range os.Args[2:] {
			for _, fields := range []string{"plain", "stop"} {
				name := nameOf(c.module)
				path := regexp.MustCompile(`\W+`).ReplaceAllString(name, "-") + "/" + wait + "/" + fields
				o := &outcome{name, wait, fields, path, "passes"}
				outcomes = append(outcomes, o)
				all.Go(func() {
					err := c.ask(ctx, os.Args[1]+"/"+path+"/")
					switch {
					case err != nil && ctx.Err() == nil:
						o.Got = "error"
					case err != nil:
						o.Got = "waits"
					}
				})
			}
		}
	}
	all.Wait()
	<-ctx.Done()
	if err := json.NewEncoder(os.Stdout).Encode(outcomes); err != nil {
		panic(err)
	}
}

// nameOf is the last part of the path of a module, and its version.
func nameOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == module {
			name := strings.TrimSuffix(module, "/v3")
			version := strings.Split(strings.TrimPrefix(m.Version, "v"), ".")
			return name[strings.LastIndex(name, "/")+1:] + " " + version[0] + "." + version[1]
		}
	}
	panic(module)
}
