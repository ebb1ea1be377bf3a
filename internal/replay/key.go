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

type keyPart struct {
	field string
	bits  int // length to which IPv6 addresses are cut; 0: the text stays as it is
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

// keyText returns the text of a value in a key: the network of an IPv6 address, or the value as it is.
func (p keyPart) keyText(text []byte) []byte {
	if p.bits == 0 || bytes.IndexByte(text, ':') < 0 {
		return text
	}
	a, err := netip.ParseAddr(string(text))
	if err != nil {
		return text
	}
	return []byte(httpkey.NetworkOf(a, p.bits))
}

func makeKey(parts []keyPart, values []accesslog.Value) ([]byte, error) {
	for i := range parts {
		if err := values[i].Err; err != nil {
			return nil, err
		}
	}
	if len(parts) == 1 {
		return parts[0].keyText(values[0].Text), nil
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = string(p.keyText(values[i].Text))
	}
	return []byte(httpkey.Join(texts...)), nil
}
