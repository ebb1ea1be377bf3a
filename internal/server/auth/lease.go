package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// A store numbers leases in sequence, so who knows the limit and the key of another caller's lease could guess its
// number. A caller with a token therefore gets a sealed number: the store's number in 52 bits, the
// first 12 of them zero, permuted with a key that is derived from the caller's token. All servers with the same file
// of tokens make the same sealed numbers, and need not store them.
const (
	leaseBits = 52      // bits of a sealed number, below a bit that marks it as sealed
	leaseMax  = 1 << 40 // numbers of the store from here on are not sealed
	halfBits  = 26      // bits of one half, as in a Feistel network
	halfMask  = 1<<halfBits - 1
	rounds    = 4 // a permutation that cannot be distinguished from a random one (Luby and Rackoff, 1988)
)

// SealLease returns the sealed number for a number of the store; itself if the caller has no token, or it is too great.
func (c *Caller) SealLease(number int64) int64 {
	if c == nil || len(c.leaseKeys) == 0 || number < 0 || number >= leaseMax {
		return number
	}
	l, r := uint64(number)>>halfBits, uint64(number)&halfMask
	for i := range rounds {
		l, r = r, l^roundValue(c.leaseKeys[0], i, r)
	}
	return int64(1<<leaseBits | l<<halfBits | r)
}

// OpenLease returns the store's number for a sealed number, and whether the lease can be one of this caller's: its
// number was sealed with one of the caller's tokens, the caller has no token, or the number is too great to be sealed.
func (c *Caller) OpenLease(number int64) (int64, bool) {
	if c == nil || len(c.leaseKeys) == 0 {
		return number, true
	}
	if number>>leaseBits != 1 {
		return number, number >= leaseMax
	}
	for _, key := range c.leaseKeys {
		l, r := uint64(number)>>halfBits&halfMask, uint64(number)&halfMask
		for i := rounds - 1; i >= 0; i-- {
			l, r = r^roundValue(key, i, l), l
		}
		if n := int64(l<<halfBits | r); n < leaseMax {
			return n, true
		}
	}
	return 0, false
}

// roundValue returns the value of the Feistel network's round function.
func roundValue(key []byte, round int, x uint64) uint64 {
	var in [9]byte
	in[0] = byte(round)
	binary.BigEndian.PutUint64(in[1:], x)
	h := hmac.New(sha256.New, key)
	h.Write(in[:])
	return binary.BigEndian.Uint64(h.Sum(nil)) & halfMask
}
