package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRunServes starts the program, and sends it a request.
func TestRunServes(t *testing.T) {
	for name, url := range map[string]string{"memory": "memory:", "postgres": dbtest.Postgres(t)} {
		addr := fmt.Sprint("127.0.0.1:", dbtest.FreePort(t))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- run(ctx, url, addr) }()
		await.NoError(t, "an answer with "+name, func() error {
			body := strings.NewReader(`{"max_tokens":50,"messages":[{"content":"Tell me a story"}]}`)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", body)
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer key-of-alice")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Contains(text, []byte(`"usage":{"prompt_tokens":4,"completion_tokens":4}`)) {
				return fmt.Errorf("%s: %s, %w", resp.Status, text, err)
			}
			return nil
		})
		stop()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
