package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// A store counts leases up, so the number of another caller's lease can be guessed, and a lease is known by its number
// alone. A caller that has a token therefore gets another number: that of the store in 52 bits, the first 12 of them
// zero, permuted with a key that only this caller's token leads to. Each server that has the same file of tokens makes
// the same numbers. Nothing is kept for it.
const (
	leaseBits = 52      // of a number that a caller gets, below a bit that says that it is one
	leaseMax  = 1 << 40 // numbers of the store from here on are handed out as they are
	half      = 26      // bits of one half, as in a Feistel network
	halfMask  = 1<<half - 1
	rounds    = 4 // a permutation that cannot be distinguished from a random one (Luby and Rackoff, 1988)
)

// SealLease returns the number by which a caller knows a lease of the store.
func (c *Caller) SealLease(number int64) int64 {
	if c == nil || len(c.leaseKeys) == 0 || number < 0 || number >= leaseMax {
		return number
	}
	l, r := uint64(number)>>half, uint64(number)&halfMask
	for i := range rounds {
		l, r = r, l^mixed(c.leaseKeys[0], i, r)
	}
	return int64(1<<leaseBits | l<<half | r)
}

// OpenLease returns the number by which the store knows a lease that was handed out, and whether it can be one of
// this caller's. A number that was made with any of its tokens is.
func (c *Caller) OpenLease(number int64) (int64, bool) {
	if c == nil || len(c.leaseKeys) == 0 {
		return number, true
	}
	if number>>leaseBits != 1 {
		return number, number >= leaseMax
	}
	for _, key := range c.leaseKeys {
		l, r := uint64(number)>>half&halfMask, uint64(number)&halfMask
		for i := rounds - 1; i >= 0; i-- {
			l, r = r^mixed(key, i, l), l
		}
		if n := int64(l<<half | r); n < leaseMax {
			return n, true
		}
	}
	return 0, false
}

// mixed returns the function of one round.
func mixed(key []byte, round int, x uint64) uint64 {
	var in [9]byte
	in[0] = byte(round)
	binary.BigEndian.PutUint64(in[1:], x)
	h := hmac.New(sha256.New, key)
	h.Write(in[:])
	return binary.BigEndian.Uint64(h.Sum(nil)) & halfMask
}

// addLeaseKey lets a caller know leases by one more of its tokens, of which the digest is given.
func (c *Caller) addLeaseKey(digest []byte) {
	h := hmac.New(sha256.New, digest)
	h.Write([]byte("headgate lease"))
	c.leaseKeys = append(c.leaseKeys, h.Sum(nil))
}
