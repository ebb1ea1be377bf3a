package httplimit

import (
	"bytes"
	"io"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
)

// CostFunc says what an incoming request costs. The zero Cost is 1, and headgate.Units(0) nothing. Its
// errors mean what those of a [KeyFunc] mean; an [*http.MaxBytesError] is answered with status 413.
type CostFunc func(*http.Request) (headgate.Cost, error)

// CostByHeader takes the cost from a header, such as "3" or "0.5". A request without it costs 1. It is an
// error of the client's if it is no positive decimal, or is there several times. More digits than fit are rounded up.
func CostByHeader(name string) CostFunc {
	return func(r *http.Request) (headgate.Cost, error) {
		cost, err := headerCost(name, r.Header)
		if cost == headgate.Units(0) { // it would not be charged
			err = headgate.Invalid("header "+name, "is 0; it must be above 0")
		}
		return cost, err
	}
}

// headerCost returns the cost that a header says, rounded up, or Units(0); the zero Cost if it is not there.
func headerCost(name string, h http.Header) (headgate.Cost, error) {
	values := h.Values(name)
	if len(values) == 0 {
		return headgate.Cost{}, nil
	}
	text, err := httpkey.Single("header "+name, values)
	if err != nil {
		return headgate.Cost{}, err
	}
	cost, err := headgate.ParseCostUp(text)
	if err != nil {
		return headgate.Cost{}, headgate.Invalid("header "+name, "%v", err)
	}
	return cost, nil
}

// CostByLength takes the bytes of the body as the cost, at least 1. A request that does not say how
// many there are, by Content-Length, is read into memory, up to most bytes; a longer one is answered with
// status 413, whether it says so or not.
func CostByLength(most int64) CostFunc {
	return func(r *http.Request) (headgate.Cost, error) {
		n := r.ContentLength
		switch {
		case n > most:
			return headgate.Cost{}, &http.MaxBytesError{Limit: most}
		case n < 0:
			body, err := readBody(r, most)
			if err != nil {
				return headgate.Cost{}, err
			}
			n = int64(len(body))
		}
		return headgate.Units(max(1, n)), nil
	}
}

// CostByJSONArray takes the number of elements of an array in a JSON body as the cost, at least 1: of a
// batch of rows for example. The path is names of members with dots between them, such as
// "batch.rows"; "" is the body itself. The body is read into memory, up to most bytes; a longer one is
// answered with status 413. The handler can read it as before.
//
// It is an error of the client's if there is no such array, or the body names a member of
// the path twice, in whatever case: the handler might read another one than was counted.
func CostByJSONArray(path string, most int64) CostFunc {
	return func(r *http.Request) (headgate.Cost, error) {
		body, err := readBody(r, most)
		if err != nil {
			return headgate.Cost{}, err
		}
		n, err := httpkey.JSONLength(body, path)
		if err != nil {
			return headgate.Cost{}, headgate.Invalid("body", "%v", err)
		}
		return headgate.Units(int64(max(1, n))), nil
	}
}

// body was read, and can be read again.
type body struct {
	io.Reader
	io.Closer // of the one that was read
}

// readBody returns the body of a request, which can be read as before.
func readBody(r *http.Request, most int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > most { // which is refused before it is sent, if the client expects 100
		return nil, &http.MaxBytesError{Limit: most}
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	r.Body = body{io.MultiReader(bytes.NewReader(text), r.Body), r.Body} // which returns the same error again
	switch {
	case err != nil:
		return nil, headgate.Invalid("body", "cannot be read to its end")
	case int64(len(text)) > most:
		return nil, &http.MaxBytesError{Limit: most}
	}
	return text, nil
}
