package forwardauth_test

import (
	"errors"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/forwardauth"
)

// FuzzQuery checks that a parsed query can be written, and is the same when it is parsed again.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"limit=api&key=alice", "limit=a&by=ip/56", "limit=a&by=ip/32", "limit=api&by=ip&cost=2.5&keep=10%25&deny=403", "deny=401&limit=a&key=&limit=b&key=%20+%2B",
		"limit=token-bucket+5%2F1m&key=%26limit%3D", "&&limit=a&key=k&", "key=k", "limit=a&key=%zz", "limit", "=&=", "limit=a;key=k",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		charges, ipBits, status, err := forwardauth.ParseQuery(raw)
		if err != nil {
			if !errors.Is(err, headgate.ErrInvalid) {
				t.Errorf("%q: got %v, want ErrInvalid", raw, err)
			}
			return
		}
		if len(charges) > forwardauth.CountCharges(raw) || len(ipBits) != len(charges) {
			t.Errorf("%q: %d charges, %d were announced", raw, len(charges), forwardauth.CountCharges(raw))
		}
		parts := []string{"deny=" + strconv.Itoa(status)}
		for i, c := range charges {
			parts = append(parts, "limit="+url.QueryEscape(c.Limit))
			if ipBits[i] != 0 {
				parts = append(parts, "by=ip/"+strconv.Itoa(ipBits[i]))
			} else {
				parts = append(parts, "key="+url.QueryEscape(c.Key))
			}
			if c.Cost != "" {
				parts = append(parts, "cost="+url.QueryEscape(c.Cost.String()))
			}
			if c.Keep != "" {
				parts = append(parts, "keep="+url.QueryEscape(c.Keep))
			}
		}
		rereadCharges, rereadBits, rereadStatus, err := forwardauth.ParseQuery(strings.Join(parts, "&"))
		if err != nil || !reflect.DeepEqual(rereadCharges, charges) || !reflect.DeepEqual(rereadBits, ipBits) ||
			rereadStatus != status {
			t.Errorf("%q: %+v, then %+v, %v", raw, charges, rereadCharges, err)
		}
	})
}
