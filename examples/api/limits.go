package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// This file has all code about limits: 56 lines of code, which the test counts.

var (
	byAccount = headgate.MustParseNamed("login-account", "sliding-log 5/15m block 15m")
	byAddress = headgate.MustParseNamed("login-address", "sliding-log 20/15m block 1h")
	tokens    = map[string]headgate.Limit{ // by tier
		"free": headgate.MustParseNamed("tokens-free", "token-bucket 1000/1m"),
		"gold": headgate.MustParseNamed("tokens-gold", "token-bucket 20000/1m"),
	}
	orders = headgate.MustParseNamed("orders", "token-bucket 10/1m")
	calls  = headgate.MustParseNamed("model", "token-bucket 50/s") // what the model's provider allows us
)

// limits are the middlewares of the service, and the limited client for the model.
type limits struct {
	login, complete, order func(http.Handler) http.Handler
	model                  *http.Client
}

func newLimits(limiter *headgate.Limiter) (l limits, err error) {
	byCustomer := func(r *http.Request) (string, error) { return customerOf(r).name, nil }
	if l.login, err = httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		OnlyFailures: true,
		Charges:      []httplimit.Charge{{Limit: byAccount, Key: accountKey}, {Limit: byAddress, Key: httplimit.ByIP}},
	}); err != nil {
		return l, err
	}
	// A completion is charged 100 tokens before it begins, and settled at its actual tokens at the end.
	if l.complete, err = httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		RefundFailures: true,
		Charges: []httplimit.Charge{{
			LimitFor: func(r *http.Request) (headgate.Limit, error) { return tokens[customerOf(r).tier], nil },
			Key:      byCustomer,
			Cost:     func(*http.Request) (headgate.Cost, error) { return headgate.Units(100), nil },
			Settle:   httplimit.SettleByHeader("Tokens"),
		}},
	}); err != nil {
		return l, err
	}
	// An order that is sent twice is charged and placed once. An order that fails can be sent again.
	if l.order, err = httplimit.NewHandler(limiter, httplimit.HandlerConfig{
		RefundFailures: true,
		ID:             func(r *http.Request) (string, error) { return r.Header.Get("Order-Id"), nil },
		Life:           24 * time.Hour,
		Charges:        []httplimit.Charge{{Limit: orders, Key: byCustomer}},
	}); err != nil {
		return l, err
	}
	transport, err := httplimit.New(limiter, calls, &httplimit.Config{MaxWait: 5 * time.Second, Retries: 1})
	l.model = &http.Client{Transport: transport}
	return l, err
}

// accountKey returns the hash of the name in lower case, which has a fixed length and hides the name from the store.
func accountKey(r *http.Request) (string, error) {
	sum := sha256.Sum256([]byte(strings.ToLower(strings.TrimSpace(r.PostFormValue("name")))))
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// customerOf returns the customer of a request that passed authenticate.
func customerOf(r *http.Request) customer {
	c, _ := r.Context().Value(customer{}).(customer)
	return c
}

// withCustomer returns the request with its customer in the context.
func withCustomer(r *http.Request, c customer) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), customer{}, c))
}
