package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()

	limiter := headgate.New(memory.New(nil), nil) // or a store that replicas share
	limit := headgate.MustParse("token-bucket 10/s")
	transport, err := httplimit.New(limiter, limit, &httplimit.Config{MaxWait: 5 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}

	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status)

	_, err = client.Get(server.URL) //nolint:bodyclose // there is none
	denied, _ := errors.AsType[*headgate.DeniedError](err)
	fmt.Println(errors.Is(err, headgate.ErrDeadline), denied.Decision.RetryAfter.Round(time.Minute))

	client.CloseIdleConnections()
	// Output:
	// 429 Too Many Requests
	// true 1m0s
}
