// Llm-budget is a proxy that keeps budgets in front of a language model: requests, tokens and money, for each user,
// team and organisation.
//
//	go run ./examples/llm-budget                            # one process
//	go run ./examples/llm-budget -store postgres://HOST/DB  # any number of replicas, the same budgets
//
//	curl -iN localhost:8082/v1/chat/completions -H 'Authorization: Bearer key-of-alice' \
//	  -H 'Idempotency-Key: 1' -d '{"max_tokens":50,"messages":[{"content":"Tell me a story"}]}'
//
// Before the model is called, an estimate is charged to six limits, all or none. While the stream goes on, the charge
// is extended before more tokens are passed on than were charged. If a limit refuses the extension, the stream ends.
// Then the charge is settled at the usage that was served. A request that is sent again with the same Idempotency-Key
// gets the same answer, and is not charged again. The model is a fake inside the program: it streams the prompt back.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/open"
)

// clients maps the hashes of API keys to their owners. The keys are hashed so that the time of a lookup reveals nothing
// about them.
var clients = map[[sha256.Size]byte]client{
	sha256.Sum256([]byte("key-of-alice")): {user: "alice", team: "search", org: "acme"},
	sha256.Sum256([]byte("key-of-bob")):   {user: "bob", team: "search", org: "acme"},
}

// fakeModel streams the prompt back, a word a token, up to max_tokens, and then the usage block. At the word BREAK the
// stream breaks off.
func fakeModel(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(e event) {
		text, _ := json.Marshal(e)
		fmt.Fprintf(w, "data: %s\n\n", text)
		_ = http.NewResponseController(w).Flush()
	}
	words := strings.Fields(q.text())
	u := usage{Prompt: int64(len(words)), Completion: min(int64(len(words)), q.MaxTokens)}
	for _, word := range words[:u.Completion] {
		if word == "BREAK" {
			panic(http.ErrAbortHandler)
		}
		send(event{Choices: []choice{{Delta: message{Content: word + " "}}}})
		time.Sleep(5 * time.Millisecond)
	}
	send(event{Usage: &u})
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func main() {
	url := flag.String("store", "memory:", "URL of the store, such as postgres://HOST/DB")
	addr := flag.String("http", "127.0.0.1:8082", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *url, *addr)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, addr string) error {
	limiter, s, err := open.Limiter(ctx, url, nil) // callers that come at once share round trips
	if err != nil {
		return err
	}
	defer s.Close()
	if db, ok := store.As[store.Migrator](s); ok {
		if _, err := db.Migrate(ctx); err != nil {
			return err
		}
	}
	model := httptest.NewServer(http.HandlerFunc(fakeModel))
	defer model.Close()
	p := &proxy{limiter: limiter, budgets: defaults, clients: clients, model: model.URL, step: 64}
	server := &http.Server{Addr: addr, Handler: p, ReadTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	log.Printf("listening on http://%s/v1/chat/completions", addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
