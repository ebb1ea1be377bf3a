package redis

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// Keys look like headgate:c:{k:alice}:login. The hash tag, between the first braces, decides the slot of a cluster. It
// has only the key, so that all limits of one key are in one slot. Braces in the caller's key are written in percent
// form, so that nobody can choose a slot.
//
// Where Config.Slot names another tag for a key, the tag stands before the key: headgate:c:{k:acme}{k:alice}:login. So
// cellOf can read the key from the name, and alice is in the slot of the key acme.
var (
	escape   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
)

const (
	cellsKind     = "c:"
	logsKind      = "l:"
	registersKind = "r:"
	receiptsKind  = "a:"         // the Lua files call a receipt an admission
	catalogPrefix = "{catalog}:" // begins the keys that catalog.go lists; no cell has this tag
	keyStart      = "{k:"
	tagEnd        = "}{k:" // between a tag and a key
	keyEnd        = "}:"
)

func (s *Store) cellKey(c law.Cell) string     { return s.key(cellsKind, c) }
func (s *Store) logKey(c law.Cell) string      { return s.key(logsKind, c) }
func (s *Store) registerKey(c law.Cell) string { return s.key(registersKind, c) }

// catalogKeys returns keys of the catalog by their names.
func (s *Store) catalogKeys(names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.cfg.Prefix + catalogPrefix + name
	}
	return keys
}

// itemsHash returns the name of the hash with the catalog's items: of single keys, or all others.
func itemsHash(perKey bool) string {
	if perKey {
		return "keys"
	}
	return "items"
}

// key returns the Redis key of a kind for a cell.
func (s *Store) key(kind string, c law.Cell) string {
	return s.cfg.Prefix + kind + keyStart + s.keyInName(c) + keyEnd + c.Limit
}

// tag returns the escaped hash tag of a cell.
func (s *Store) tag(c law.Cell) string {
	if s.cfg.Slot == nil {
		return escape.Replace(c.Key)
	}
	return escape.Replace(s.cfg.Slot(c.Key))
}

// keyInName returns the escaped key of a cell, after its tag if the tag is another.
func (s *Store) keyInName(c law.Cell) string {
	key := escape.Replace(c.Key)
	if s.cfg.Slot == nil {
		return key
	}
	if tag := s.tag(c); tag != key {
		return tag + tagEnd + key
	}
	return key
}

// receiptKey returns the Redis key of a cell's receipt of an ID. Limits and IDs may have any character, so the length
// says where the limit ends.
func (s *Store) receiptKey(c law.Cell, id string) string {
	return s.cfg.Prefix + receiptsKind + keyStart + s.keyInName(c) + keyEnd +
		strconv.Itoa(len(c.Limit)) + ":" + c.Limit + ":" + id
}

// cellOf is the inverse of cellKey. It refuses a name whose tag is not the one that the key has now.
func (s *Store) cellOf(key string) (c law.Cell, ok bool) {
	rest, ok := strings.CutPrefix(key, s.cfg.Prefix+cellsKind+keyStart)
	if !ok {
		return c, false
	}
	name, limit, ok := strings.Cut(rest, keyEnd)
	tag, key, tagged := strings.Cut(name, tagEnd)
	if !tagged {
		key = tag
	}
	c = law.Cell{Limit: limit, Key: unescape.Replace(key)}
	return c, ok && (s.cfg.Slot == nil && !tagged || s.keyInName(c) == name)
}

// parseCell reads the text of a cell, as cells.lua writes it.
func parseCell(v string) (st law.State, reason string, ok bool) {
	n, reason, ok := parseNumbers(v)
	if !ok {
		return st, "", false
	}
	return decodeState(n[:]), reason, true
}

// parseEntry reads a member of a log, with its score.
func parseEntry(member string, score float64) (e law.Entry, ok bool) {
	fields := strings.SplitN(member, " ", 6)
	if len(fields) != 6 {
		return e, false
	}
	var n [5]int64
	for i := range n {
		v, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return e, false
		}
		n[i] = v
	}
	return law.Entry{
		Number: n[0], At: n[1], KeepUntil: n[2], Cost: n[3], Granted: n[4] == 1, ID: fields[5],
		ExpiresAt: int64(score),
	}, true
}

// slotOf returns the slot of a cluster that a cell is in, of 16384: the CRC16 (polynomial 0x1021) of the hash tag
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
func (s *Store) slotOf(c law.Cell) uint16 {
	var crc uint16
	for _, b := range []byte("k:" + s.tag(c)) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
