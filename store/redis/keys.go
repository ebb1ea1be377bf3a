package redis

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// Keys look like headgate:c:{k:alice}:login. What stands between the first braces, the
// hash tag, decides the slot of a cluster: the key and nothing else, so that all limits
// of one key are in one slot; and the user's own braces are written in percent form, so
// that nobody can choose a slot.
//
// Where Config.Slot names another tag for a key, the tag stands before the key:
// headgate:c:{k:acme}{k:alice}:login. So cellOf can read the key from the name,
// and alice is in the slot of the key acme.
var (
	escape   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
)

const (
	cells         = "c:"
	logs          = "l:"
	registers     = "r:"
	admissions    = "a:"
	catalogPrefix = "{catalog}:" // begins what catalog.go lists: a tag that no key has
	open          = "{k:"
	both          = "}{k:" // between a tag and a key
	shut          = "}:"
)

func (s *Store) cellKey(c law.Cell) string     { return s.key(cells, c) }
func (s *Store) logKey(c law.Cell) string      { return s.key(logs, c) }
func (s *Store) registerKey(c law.Cell) string { return s.key(registers, c) }

// catalogKeys returns keys of the catalog by their names.
func (s *Store) catalogKeys(names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.cfg.Prefix + catalogPrefix + name
	}
	return keys
}

// hashOf returns the name of the hash of catalog items: with perKey, of those of single keys.
func hashOf(perKey bool) string {
	if perKey {
		return "keys"
	}
	return "items"
}

func (s *Store) key(kind string, c law.Cell) string {
	return s.cfg.Prefix + kind + open + s.place(c) + shut + c.Limit
}

// tag returns the hash tag of a cell, as it is written in names.
func (s *Store) tag(c law.Cell) string {
	if s.cfg.Slot == nil {
		return escape.Replace(c.Key)
	}
	return escape.Replace(s.cfg.Slot(c.Key))
}

// place returns the key of a cell as it is written in names, after its tag if that is
// another.
func (s *Store) place(c law.Cell) string {
	key := escape.Replace(c.Key)
	if s.cfg.Slot == nil {
		return key
	}
	if tag := s.tag(c); tag != key {
		return tag + both + key
	}
	return key
}

// admissionKey returns the key of an ID in a cell. Limits and IDs may have any character,
// so the length says where one ends.
func (s *Store) admissionKey(c law.Cell, id string) string {
	return s.cfg.Prefix + admissions + open + s.place(c) + shut + strconv.Itoa(len(c.Limit)) + ":" + c.Limit + ":" + id
}

// cellOf returns the inverse of cellKey. A name with another tag than the key has now is that of no cell.
func (s *Store) cellOf(key string) (c law.Cell, ok bool) {
	rest, ok := strings.CutPrefix(key, s.cfg.Prefix+cells+open)
	if !ok {
		return c, false
	}
	name, limit, ok := strings.Cut(rest, shut)
	tag, key, tagged := strings.Cut(name, both)
	if !tagged {
		key = tag
	}
	c = law.Cell{Limit: limit, Key: unescape.Replace(key)}
	return c, ok && (s.cfg.Slot == nil && !tagged || s.place(c) == name)
}

// parseCell reads what cells.lua calls text.
func parseCell(v string) (st law.State, reason string, ok bool) {
	n, reason, ok := numbers(v)
	if !ok {
		return st, "", false
	}
	return decodeState(n[:8]), reason, true
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

// slotOf returns the slot of a cluster that a cell is in: CRC16 of the hash
// tag (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
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
