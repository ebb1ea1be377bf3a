package httplimit

import (
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/internal/outgoing"
)

// exhausted returns how long it is until no quota of a RateLimit field is used
// up: 0 if none is, or if the field is no structured field (RFC 9651). It knows the
// list of the Internet-Draft (version 8 and up),
//
//	RateLimit: "burst";r=0;t=5, "daily";r=700
//
// and the dictionary of version 7,
//
//	RateLimit: limit=100, remaining=0, reset=5
func exhausted(lines []string) (hold time.Duration) {
	if list, err := httpsfv.UnmarshalList(lines); err == nil {
		for _, member := range list {
			if quota, ok := member.(httpsfv.Item); ok {
				remaining, _ := quota.Params.Get("r")
				reset, _ := quota.Params.Get("t")
				hold = max(hold, usedUp(remaining, reset))
			}
		}
		return hold
	}
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return 0
	}
	return usedUp(plain(dict, "remaining"), plain(dict, "reset"))
}

// plain returns the value of a member of a dictionary, or nil if it has none.
func plain(dict *httpsfv.Dictionary, name string) any {
	member, _ := dict.Get(name)
	item, _ := member.(httpsfv.Item)
	return item.Value
}

// usedUp returns the seconds in reset if nothing remains. What is no integer is
// ignored, and so is a negative one.
func usedUp(remaining, reset any) time.Duration {
	r, ok := remaining.(int64)
	t, isInteger := reset.(int64)
	if !ok || !isInteger || r != 0 || t < 0 {
		return 0
	}
	return time.Duration(min(t, int64(outgoing.Longest/time.Second))) * time.Second
}
