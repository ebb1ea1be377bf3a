package httplimit

import (
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/internal/outgoing"
)

// untilQuotaReturns returns the longest reset of the used up quotas in a RateLimit field: 0 if no quota is used up, or
// if the field is no structured field (RFC 9651). It reads the list of the Internet-Draft (version 8 and up),
//
//	RateLimit: "burst";r=0;t=5, "daily";r=700
//
// and the dictionary of version 7,
//
//	RateLimit: limit=100, remaining=0, reset=5
func untilQuotaReturns(lines []string) (hold time.Duration) {
	if list, err := httpsfv.UnmarshalList(lines); err == nil {
		for _, member := range list {
			if quota, ok := member.(httpsfv.Item); ok {
				remaining, _ := quota.Params.Get("r")
				reset, _ := quota.Params.Get("t")
				hold = max(hold, resetIfExhausted(remaining, reset))
			}
		}
		return hold
	}
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return 0
	}
	return resetIfExhausted(dictionaryValue(dict, "remaining"), dictionaryValue(dict, "reset"))
}

// dictionaryValue returns the value of a member of a dictionary, or nil if the member is missing.
func dictionaryValue(dict *httpsfv.Dictionary, name string) any {
	member, _ := dict.Get(name)
	item, _ := member.(httpsfv.Item)
	return item.Value
}

// resetIfExhausted returns reset, which is in seconds, as a duration if remaining is 0. It returns 0 if a value
// is no integer, or reset is negative.
func resetIfExhausted(remaining, reset any) time.Duration {
	r, ok := remaining.(int64)
	t, isInteger := reset.(int64)
	if !ok || !isInteger || r != 0 || t < 0 {
		return 0
	}
	return time.Duration(min(t, int64(outgoing.MaxBlock/time.Second))) * time.Second
}
