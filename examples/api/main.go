// Api is a small service with limits of five kinds: failed logins by account and by address, tokens by the customer's
// tier that are settled at what was used, orders that are placed once however often they are sent, and model calls.
//
//	go run ./examples/api                          # then, as the user ada with the password lovelace:
//	curl -d name=ada -d password=lovelace http://127.0.0.1:8082/login
//	curl -i -H 'Authorization: Bearer gold-key' -d 'a long question' http://127.0.0.1:8082/completions
//	curl -i -H 'Authorization: Bearer free-key' -H 'Order-Id: 1' -d book http://127.0.0.1:8082/orders
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/open"
)

type customer struct{ name, tier string }

// customers maps API keys to their owners.
var customers = map[string]customer{"gold-key": {"ada", "gold"}, "free-key": {"bob", "free"}}

// site is the service.
type site struct {
	model  *http.Client
	url    string // URL of the model
	mu     sync.Mutex
	orders []string // what was ordered, and for whom; guarded by mu
}

// newSite returns the service and its handler. url is the URL of the model.
func newSite(limiter *headgate.Limiter, url string) (*site, http.Handler, error) {
	limits, err := newLimits(limiter)
	if err != nil {
		return nil, nil, err
	}
	s := &site{model: limits.model, url: url}
	mux := http.NewServeMux()
	mux.Handle("POST /login", limits.login(http.HandlerFunc(logIn)))
	mux.Handle("POST /completions", authenticate(limits.complete(http.HandlerFunc(s.complete))))
	mux.Handle("POST /orders", authenticate(limits.order(http.HandlerFunc(s.order))))
	return s, http.MaxBytesHandler(mux, 1<<16), nil
}

// logIn answers a login. A real service compares a slow hash and starts a session.
func logIn(w http.ResponseWriter, r *http.Request) {
	isUser := r.PostFormValue("name") == "ada"
	if subtle.ConstantTimeCompare([]byte(r.PostFormValue("password")), []byte("lovelace")) != 1 || !isUser {
		http.Error(w, "The name or the password is wrong.", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "Welcome!")
}

// authenticate passes on requests that have the API key of a customer. It runs before the limits, which depend on the
// customer.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		c, ok := customers[key]
		if !ok {
			http.Error(w, "The API key is unknown.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, withCustomer(r, c))
	})
}

// complete passes on a question to the model, and its answer with the number of tokens in the header Tokens.
func (s *site) complete(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, s.url, r.Body)
	if err != nil {
		http.Error(w, "The question cannot be asked.", http.StatusInternalServerError)
		return
	}
	resp, err := s.model.Do(req)
	if err != nil { // also if the limit of our own calls would make it wait too long
		log.Print(err)
		http.Error(w, "The model cannot be asked. Please try again later.", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		http.Error(w, "The model does not answer.", http.StatusBadGateway)
		return
	}
	w.Header().Set("Tokens", resp.Header.Get("Tokens"))
	_, _ = io.Copy(w, resp.Body) // the client may be gone
}

// order places an order.
func (s *site) order(w http.ResponseWriter, r *http.Request) {
	what, err := io.ReadAll(r.Body)
	if err != nil || len(what) == 0 {
		http.Error(w, "What is ordered?", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.orders = append(s.orders, fmt.Sprintf("%s for %s", what, customerOf(r).name))
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}

// newModel returns a server that answers a question with its length, and counts bytes as tokens. It fails at "crash".
func newModel() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		if strings.HasPrefix(string(question), "crash") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Tokens", strconv.Itoa(len(question)))
		fmt.Fprintf(w, "The question has %d bytes.\n", len(question))
	}))
}

func main() {
	url := flag.String("store", "memory:", "URL of the store, such as sqlite:FILE")
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
	limiter, s, err := open.Limiter(ctx, url, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	model := newModel()
	defer model.Close()
	_, handler, err := newSite(limiter, model.URL)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: handler, ReadTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	log.Printf("listening on http://%s/", addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
