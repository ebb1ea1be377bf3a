// Command plainhttp is what a server over HTTP costs that decides nothing: it reads the body of each
// request, and answers with the status, headers and body that it is given.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	addr := flag.String("addr", "", "address to listen on")
	status := flag.Int("status", http.StatusOK, "of all answers")
	headers := flag.String("headers", "", "of all answers: lines such as Name: value")
	body := flag.String("body", "", "of all answers")
	flag.Parse()
	type line struct{ name, value string }
	var lines []line
	for text := range strings.Lines(*headers) {
		name, value, ok := strings.Cut(strings.TrimSpace(text), ": ")
		if ok {
			lines = append(lines, line{http.CanonicalHeaderKey(name), value})
		}
	}
	text := []byte(*body)
	length := strconv.Itoa(len(text))
	server := http.Server{
		Addr: *addr, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			h := w.Header()
			for _, l := range lines {
				h.Set(l.name, l.value)
			}
			if len(text) > 0 {
				h.Set("Content-Length", length)
			}
			w.WriteHeader(*status)
			_, _ = w.Write(text)
		}),
	}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
