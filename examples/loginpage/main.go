// Loginpage is a login form that limits guessing, by account and by address.
//
//	go run ./examples/loginpage                          # then open http://127.0.0.1:8081/
//	go run ./examples/loginpage -store sqlite:logins.db  # the counts survive a restart
//
// Five failures in 15 minutes are allowed for an account and 20 for an address. Successful logins do not count. Neither
// the answers of the page nor its response times reveal which accounts exist.
package main

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/open"
)

var (
	byAccount = headgate.MustParseNamed("login-account", "sliding-log 5/15m")
	byAddress = headgate.MustParseNamed("login-address", "sliding-log 20/15m")
)

const form = `<!doctype html><title>Log in</title><form method=post>
<input name=name placeholder=name> <input name=password type=password> <button>Log in</button></form>`

// site is the page with its users.
type site struct {
	users  map[string]credential
	nobody credential // takes the place of a user who does not exist
	hash   func(password string, salt []byte) []byte
}

// credential has the salted hash of a password.
type credential struct{ salt, hash []byte }

// newCredential hashes a password with a new salt.
func (s *site) newCredential(password string) credential {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return credential{salt, s.hash(password, salt)}
}

// hasPassword reports whether the password is the user's. It does the same work for a user who does not exist.
func (s *site) hasPassword(name, password string) bool {
	c, exists := s.users[name]
	if !exists {
		c = s.nobody
	}
	equal := subtle.ConstantTimeCompare(s.hash(password, c.salt), c.hash) == 1
	return exists && equal
}

// newLoginLimit returns a middleware that charges an attempt to the account and to the address. It charges before
// the password is checked, so that attempts at the same time cannot pass the limits, and gives the charge back if the
// password is right. An account that does not exist is charged like any other, so a refusal reveals nothing about it.
// Nobody can log in while the store is away.
func newLoginLimit(limiter *headgate.Limiter) (func(http.Handler) http.Handler, error) {
	return httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		OnlyFailures: true,
		Charges: []httplimit.Charge{
			{Limit: byAccount, Key: accountKey},
			{Limit: byAddress, Key: httplimit.ByIP}, // behind a proxy: httplimit.ByProxiedIP
		},
		Refuse: func(w http.ResponseWriter, _ *http.Request, _ *headgate.Decision) {
			http.Error(w, "Too many attempts. Please try again later.", http.StatusTooManyRequests)
		},
	})
}

// accountKey returns the hash of the account, which has a fixed length and hides the name from the store.
func accountKey(r *http.Request) (string, error) {
	sum := sha256.Sum256([]byte(account(r)))
	return hex.EncodeToString(sum[:]), nil
}

// account returns the name of the account of an attempt, in lower case.
func account(r *http.Request) string {
	return strings.ToLower(strings.TrimSpace(r.PostFormValue("name")))
}

// logIn answers an attempt that the limits have admitted. They count the status 401 as a failure.
func (s *site) logIn(w http.ResponseWriter, r *http.Request) {
	if !s.hasPassword(account(r), r.PostFormValue("password")) {
		http.Error(w, "The name or the password is wrong.", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "Welcome!") // a real page starts a session here
}

// newSite returns the handler of the page, with one user. Forms of other sites are refused.
func newSite(limiter *headgate.Limiter, hash func(string, []byte) []byte) (http.Handler, error) {
	limit, err := newLoginLimit(limiter)
	if err != nil {
		return nil, err
	}
	s := &site{users: map[string]credential{}, hash: hash}
	s.nobody = s.newCredential(rand.Text())
	s.users["alice"] = s.newCredential("correct horse battery staple")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, form)
	})
	mux.Handle("POST /{$}", limit(http.HandlerFunc(s.logIn)))
	return http.MaxBytesHandler(http.NewCrossOriginProtection().Handler(mux), 4096), nil
}

// slowHash returns a hash that takes long to compute, to slow down guessing with stolen hashes.
func slowHash(password string, salt []byte) []byte {
	key, err := pbkdf2.Key(sha256.New, password, salt, 600_000, 32)
	if err != nil {
		panic(err) // a missing hash must not be equal to another missing hash
	}
	return key
}

func main() {
	url := flag.String("store", "memory:", "URL of the store, such as sqlite:FILE")
	addr := flag.String("http", "127.0.0.1:8081", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *url, *addr)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, addr string) error {
	limiter, s, err := open.Limiter(ctx, url, nil) // several machines share a database
	if err != nil {
		return err
	}
	defer s.Close()
	handler, err := newSite(limiter, slowHash)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: handler, ReadTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	log.Printf("listening on http://%s/, the user is alice", addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
