// Loginpage is a login form that limits guessing, by account and by address.
//
//	go run ./examples/loginpage                          # then open http://127.0.0.1:8081/
//	go run ./examples/loginpage -store sqlite:logins.db  # the counts survive a restart
//
// Five failures in 15 minutes are allowed for an account and 20 for an address. Successful
// logins do not count. The page does not tell which accounts exist, neither by what it
// answers nor by how long it takes.
package main

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/sqlite"
)

var (
	byAccount = headgate.MustParse("sliding-log 5/15m")
	byAddress = headgate.MustParse("sliding-log 20/15m")
)

const form = `<!doctype html><title>Log in</title><form method=post>
<input name=name placeholder=name> <input name=password type=password> <button>Log in</button></form>`

// site is the page with its users.
type site struct {
	limiter *headgate.Limiter
	users   map[string]credential
	nobody  credential // compared with where there is no such user
	hash    func(password string, salt []byte) []byte
}

type credential struct{ salt, hash []byte }

func (s *site) credential(password string) credential {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // which never fails
	return credential{salt, s.hash(password, salt)}
}

// right reports whether the password is the user's. It does the same work for a user who
// does not exist.
func (s *site) right(name, password string) bool {
	c, known := s.users[name]
	if !known {
		c = s.nobody
	}
	equal := subtle.ConstantTimeCompare(s.hash(password, c.salt), c.hash) == 1
	return known && equal
}

// logIn answers an attempt. The attempt is charged to the account and to the address before
// the password is looked at, so that attempts at the same time cannot pass the limits, and is
// given back if the password is right. An account that does not exist is charged as others
// are: a refusal tells nothing about it.
func (s *site) logIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	name, password := strings.ToLower(strings.TrimSpace(r.PostFormValue("name"))), r.PostFormValue("password")
	key := sha256.Sum256([]byte(name)) // has the same length for every name, and hides the names from the store
	attempt, err := s.limiter.Reserve(r.Context(), 0,
		headgate.Charge{Limit: byAccount, Key: fmt.Sprintf("account %x", key)},
		headgate.Charge{Limit: byAddress, Key: "address " + network(r.RemoteAddr)})
	switch {
	case err != nil: // nobody logs in while the store is away
		log.Print(err)
		http.Error(w, "Please try again later.", http.StatusServiceUnavailable)
	case !attempt.Decision.Allowed:
		seconds := (attempt.Decision.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", fmt.Sprint(int64(seconds)))
		http.Error(w, "Too many attempts. Please try again later.", http.StatusTooManyRequests)
	case !s.right(name, password):
		http.Error(w, "The name or the password is wrong.", http.StatusUnauthorized) // the attempt stays charged
	default:
		if _, err := attempt.Cancel(r.Context()); err != nil {
			log.Print(err) // the attempt counts as a failure, which harms nobody
		}
		fmt.Fprintln(w, "Welcome!") // a real page starts a session here
	}
}

// network returns the address of a client, or the /64 that an IPv6 client can choose from.
// Behind a proxy, use the address that the proxy tells instead.
func network(remote string) string {
	a, _ := netip.ParseAddrPort(remote)
	addr, bits := a.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits)
	return p.String()
}

// newSite returns the handler of the page, with one user. Forms of other sites are refused.
func newSite(limiter *headgate.Limiter, hash func(string, []byte) []byte) http.Handler {
	s := &site{limiter: limiter, users: map[string]credential{}, hash: hash}
	s.nobody = s.credential(rand.Text())
	s.users["alice"] = s.credential("correct horse battery staple")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, form)
	})
	mux.HandleFunc("POST /{$}", s.logIn)
	return http.NewCrossOriginProtection().Handler(mux)
}

func slowHash(password string, salt []byte) []byte {
	key, err := pbkdf2.Key(sha256.New, password, salt, 600_000, 32)
	if err != nil {
		panic(err) // a hash that is missing must not be equal to another one
	}
	return key
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("loginpage", flag.ContinueOnError)
	url := flags.String("store", "sqlite::memory:", "URL of the store: sqlite:FILE or sqlite::memory:")
	addr := flags.String("http", "127.0.0.1:8081", "address to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	file, err := sqlite.Open(ctx, *url, nil) // postgres.Open, mysql.Open or redis.Open for several machines
	if err != nil {
		return err
	}
	s := front.New(file, nil)
	defer s.Close()
	server := &http.Server{Addr: *addr, Handler: newSite(headgate.New(s, nil), slowHash), ReadTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	log.Printf("listening on http://%s/, the user is alice", *addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
