// Package httplimit limits the requests that an HTTP server answers, and those that an HTTP client sends.
//
// # Incoming requests
//
//	mux.Handle("POST /search", httplimit.Handler(limiter, limit, httplimit.ByIP)(search))
//
// [Handler] is middleware that charges each request to its client's address, or to the key of another [KeyFunc], and
// answers with status 429 when the limit refuses. [NewHandler] takes several charges, costs that depend on the request
// or on the answer, and can count failures only. It works with every router that takes func(http.Handler) http.Handler.
//
// # Outgoing requests
//
// [RoundTripper] limits outgoing calls, and obeys the limits that the servers at the other end announce.
//
//	rt, err := httplimit.New(limiter, limit, &httplimit.Config{MaxWait: time.Minute, Retries: 2})
//	client := &http.Client{Transport: rt}
//
// Every request is charged to its host, or to the key that Config.Key returns, before it is sent. A request that the
// limit refuses is never sent: it waits, or fails with a [headgate.DeniedError].
//
// An answer that asks to hold back, by Retry-After or by a quota of which nothing remains, blocks the key in the store,
// so that every replica which shares the store holds back for that time. Requests that were admitted but wait for their
// start hold back too; requests that were sent before the answer came cannot be stopped. Under a limit with a prefetch
// (see internal/front/prefetch) a replica sends what it has taken up front before it sees a block.
//
// If two replicas get answers with different times within the same few milliseconds, the earlier time may remain in the
// store: there is no way yet to raise a block in one step. The next answer of the server corrects it. Within a
// RoundTripper the later time always remains.
package httplimit
