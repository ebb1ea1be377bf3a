package replay

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/httpkey"
)

// keyPart is a field that is a key, or a part of one.
type keyPart struct {
	field string
	bits  int // of the network that an IPv6 address stands for; 0: the text as it is
}

// parseKey reads a list of fields such as "ip,path" or "ip/48".
func parseKey(spec string) ([]keyPart, error) {
	if spec == "" {
		return nil, headgate.Invalid("key", "is missing; say ip, user, path, method, status or a JSON path")
	}
	var parts []keyPart
	for word := range strings.SplitSeq(spec, ",") {
		p := keyPart{field: word}
		if word == "" {
			return nil, headgate.Invalid("key", "%q has an empty part", spec)
		}
		if word == "ip" {
			p.bits = httpkey.SharedBits
		}
		if i := strings.LastIndexByte(word, '/'); i > 0 {
			n, err := httpkey.ParseBits(word[i+1:])
			if err != nil {
				return nil, headgate.Invalid("key", "%q: %v", word, err)
			}
			p = keyPart{word[:i], n}
		}
		if slices.ContainsFunc(parts, func(q keyPart) bool { return q.field == p.field }) {
			return nil, headgate.Invalid("key", "%q has %s twice", spec, p.field)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// of returns what a value is in a key: an address in IPv6 by its network, and other text as it is.
func (p keyPart) of(text []byte) []byte {
	if p.bits == 0 || bytes.IndexByte(text, ':') < 0 {
		return text
	}
	a, err := netip.ParseAddr(string(text))
	if err != nil {
		return text
	}
	return []byte(httpkey.NetworkOf(a, p.bits))
}

// keyOf returns the key of a line.
func keyOf(parts []keyPart, values []accesslog.Value) ([]byte, error) {
	for i := range parts {
		if err := values[i].Err; err != nil {
			return nil, err
		}
	}
	if len(parts) == 1 {
		return parts[0].of(values[0].Text), nil
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = string(p.of(values[i].Text))
	}
	return []byte(httpkey.Join(texts...)), nil
}
