package memory

import "encoding/binary"

// names are the keys of the cells of a table, in one text without a pointer, so that a
// million keys are not a million objects. What limit a cell is of is known by its slot.
type names struct {
	at   []uint32 // of each slot: where its key begins in text, after its length; 0: it has none
	text []byte
	gone int // bytes of text that belong to no slot any more
}

// newNames returns names for a number of slots, with room for a text of this many bytes.
func newNames(slots, size int) *names {
	return &names{at: make([]uint32, slots), text: make([]byte, 1, 1+size)}
}

// put keeps the key of slot i, which has none.
func (n *names) put(i int, key string) {
	if most := len(key) + binary.MaxVarintLen32; len(n.text)+most > cap(n.text) {
		n.pack(most)
	}
	n.at[i] = uint32(len(n.text))
	n.text = binary.AppendUvarint(n.text, uint64(len(key)))
	n.text = append(n.text, key...)
}

// entry returns the key of slot i with its length before it, and the key alone.
func (n *names) entry(i int) (whole, key []byte) {
	text := n.text[n.at[i]:]
	length, head := binary.Uvarint(text)
	whole = text[:head+int(length)]
	return whole, whole[head:]
}

// move gives the key of one slot to another, which has none.
func (n *names) move(to, from int) { n.at[to], n.at[from] = n.at[from], 0 }

// drop forgets the key of slot i.
func (n *names) drop(i int) {
	whole, _ := n.entry(i)
	n.gone += len(whole)
	n.at[i] = 0
}

// copy keeps the key of a slot of others for slot i, which has none.
func (n *names) copy(i int, others *names, other int) {
	whole, _ := others.entry(other)
	n.at[i] = uint32(len(n.text))
	n.text = append(n.text, whole...)
}

// pack moves the keys into a text that has room for this many bytes more, and for an eighth of
// what is there: so few bytes lie idle, and each is moved a few times only.
func (n *names) pack(more int) {
	live := len(n.text) - n.gone
	text := make([]byte, 1, live+live/8+more)
	for i, at := range n.at {
		if at != 0 {
			whole, _ := n.entry(i)
			n.at[i] = uint32(len(text))
			text = append(text, whole...)
		}
	}
	n.text, n.gone = text, 0
}
