package httplimit

import (
	"bytes"
	"io"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
)

// CostFunc returns the cost of an incoming request. The zero Cost is 1, and headgate.Units(0) nothing. Errors
// are answered like the errors of a [KeyFunc], and an [*http.MaxBytesError] with status 413.
type CostFunc func(*http.Request) (headgate.Cost, error)

// CostByHeader takes the cost from a header, such as "3" or "0.5". A request without the header costs 1. A value that
// is no positive decimal, or several values, are an error of the client's. More digits than fit are rounded up.
func CostByHeader(name string) CostFunc {
	return func(r *http.Request) (headgate.Cost, error) {
		cost, err := headerCost(name, r.Header)
		if cost == headgate.Units(0) { // which would leave the charge out
			err = headgate.Invalid("header "+name, "is 0; it must be above 0")
		}
		return cost, err
	}
}

// headerCost returns the cost in a header, rounded up; Units(0) if it is 0, the zero Cost if the header is missing.
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

// CostByLength takes the length of the body in bytes as the cost, at least 1. A body without a Content-Length is read
// into memory, up to maxBytes. A longer body is answered with status 413, with or without a Content-Length.
func CostByLength(maxBytes int64) CostFunc {
	return func(r *http.Request) (headgate.Cost, error) {
		n := r.ContentLength
		switch {
		case n > maxBytes:
			return headgate.Cost{}, &http.MaxBytesError{Limit: maxBytes}
		case n < 0:
			content, err := readBody(r, maxBytes)
			if err != nil {
				return headgate.Cost{}, err
			}
			n = int64(len(content))
		}
		return headgate.Units(max(1, n)), nil
	}
}

// CostByJSONArray takes the number of elements of an array in a JSON body as the cost, at least 1, such as
// the rows of a batch. The path consists of member names with dots between them, such as
// "batch.rows"; "" is the body itself. The body is read into memory, up to maxBytes; a longer body is
// answered with status 413. The handler can still read the body.
//
// It is an error of the client's if there is no such array, or the body names a member of the
// path twice, in whatever case: the handler might read another member than the counted one.
func CostByJSONArray(path string, maxBytes int64) CostFunc {
	return func(r *http.Request) (headgate.Cost, error) {
		content, err := readBody(r, maxBytes)
		if err != nil {
			return headgate.Cost{}, err
		}
		n, err := httpkey.JSONLength(content, path)
		if err != nil {
			return headgate.Cost{}, headgate.Invalid("body", "%v", err)
		}
		return headgate.Units(int64(max(1, n))), nil
	}
}

// bufferedBody is a body that is in memory, so that it can be read again.
type bufferedBody struct {
	io.Reader
	io.Closer // closes the original body
}

// readBody returns the body of a request, and puts it back so that the handler can read it.
func readBody(r *http.Request, maxBytes int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > maxBytes { // so a client that expects 100 need not send the body
		return nil, &http.MaxBytesError{Limit: maxBytes}
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBytes+1))
	r.Body = bufferedBody{io.MultiReader(bytes.NewReader(text), r.Body), r.Body} // r.Body returns the same error again
	switch {
	case err != nil:
		return nil, headgate.Invalid("body", "cannot be read to its end")
	case int64(len(text)) > maxBytes:
		return nil, &http.MaxBytesError{Limit: maxBytes}
	}
	return text, nil
}
