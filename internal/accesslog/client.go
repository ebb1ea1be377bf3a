package accesslog

import (
	"bytes"
	"errors"
	"net/netip"
)

var errNoAddress = errors.New("has no address where the client's should be: key by another field")

// clients is a reader whose field ip is an address as the middleware has it: of a list, which an X-Forwarded-For
// leaves, the first, without port, brackets and zone. Anything else, such as the name of a host or the word before the
// address, is an error of the value: it would be counted as a client.
type clients struct {
	Reader
	at []int // places of the field
}

// withClients returns r, or a reader that looks at the fields ip.
func withClients(r Reader, fields []string) Reader {
	c := &clients{Reader: r}
	for i, field := range fields {
		if field == columnNames[ip] {
			c.at = append(c.at, i)
		}
	}
	if len(c.at) == 0 {
		return r
	}
	return c
}

// Read implements Reader.
func (c *clients) Read(line []byte) (Record, error) {
	rec, err := c.Reader.Read(line)
	if err == nil && len(rec.Values) > 0 {
		for _, i := range c.at {
			if v := &rec.Values[i]; v.Err == nil {
				v.Text, v.Err = clientAddress(v.Text)
			}
		}
	}
	return rec, err
}

// clientAddress returns the address that a text is.
func clientAddress(text []byte) ([]byte, error) {
	first, _, _ := bytes.Cut(text, []byte{','})
	first = bytes.TrimSpace(first)
	bare := string(first)
	a, err := netip.ParseAddr(bare)
	if err == nil && a.Zone() == "" {
		return first, nil
	}
	if err != nil {
		if ap, err := netip.ParseAddrPort(bare); err == nil {
			a = ap.Addr()
		} else if inner, ok := bytes.CutPrefix(first, []byte{'['}); ok {
			a, _ = netip.ParseAddr(string(bytes.TrimSuffix(inner, []byte{']'})))
		}
	}
	if !a.IsValid() {
		return nil, errNoAddress
	}
	return []byte(a.WithZone("").String()), nil
}
