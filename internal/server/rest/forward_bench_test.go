package rest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// headerWriter is a ResponseWriter that keeps the header only.
type headerWriter struct{ header http.Header }

func (w *headerWriter) Header() http.Header       { return w.header }
func (*headerWriter) Write(p []byte) (int, error) { return len(p), nil }
func (*headerWriter) WriteHeader(int)             {}

// BenchmarkAuth measures /v1/auth without the network: what Headgate adds to net/http.
func BenchmarkAuth(b *testing.B) {
	h, _ := stackHandler(b)
	const target = "http://127.0.0.1:8080/v1/auth?limit=token-bucket+1000000%2Fs&key=user-1"
	r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	r.Header.Set("X-Forwarded-Uri", "/")
	b.ReportAllocs()
	for b.Loop() {
		w := headerWriter{make(http.Header, 8)}
		h.ServeHTTP(&w, r)
		if w.header["Ratelimit"] == nil {
			b.Fatal(w.header)
		}
	}
}
