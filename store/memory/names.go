package memory

import "encoding/binary"

// names has the keys of the cells of a table in one text without a pointer, so that a million keys are not a million
// objects. It leaves out the limit of a cell, which its slot gives.
type names struct {
	at        []uint32 // for each slot: where in text the length of its key stands, before the key; 0: no key
	text      []byte   // the keys; no key is at its first byte
	deadBytes int      // bytes of text that no longer belong to a slot
}

// newNames returns names for a number of slots, with room for a text of this many bytes.
func newNames(slots, size int) *names {
	return &names{at: make([]uint32, slots), text: make([]byte, 1, 1+size)}
}

// put sets the key of slot i, which has none.
func (n *names) put(i int, key string) {
	if maxSize := len(key) + binary.MaxVarintLen32; len(n.text)+maxSize > cap(n.text) {
		n.pack(maxSize)
	}
	n.at[i] = uint32(len(n.text))
	n.text = binary.AppendUvarint(n.text, uint64(len(key)))
	n.text = append(n.text, key...)
}

// entry returns the key of slot i with its length before it, and the key alone.
func (n *names) entry(i int) (lengthAndKey, key []byte) {
	text := n.text[n.at[i]:]
	length, head := binary.Uvarint(text)
	lengthAndKey = text[:head+int(length)]
	return lengthAndKey, lengthAndKey[head:]
}

// move moves the key of slot from to slot to, which has none.
func (n *names) move(to, from int) { n.at[to], n.at[from] = n.at[from], 0 }

// drop forgets the key of slot i.
func (n *names) drop(i int) {
	lengthAndKey, _ := n.entry(i)
	n.deadBytes += len(lengthAndKey)
	n.at[i] = 0
}

// copy sets the key of slot i, which has none, to the key of slot other of others.
func (n *names) copy(i int, others *names, other int) {
	lengthAndKey, _ := others.entry(other)
	n.at[i] = uint32(len(n.text))
	n.text = append(n.text, lengthAndKey...)
}

// pack moves the keys into a new text with room for newBytes, and for an eighth of the live bytes: so few bytes lie
// idle, and each byte is moved a few times only.
func (n *names) pack(newBytes int) {
	live := len(n.text) - n.deadBytes
	text := make([]byte, 1, live+live/8+newBytes)
	for i, at := range n.at {
		if at != 0 {
			lengthAndKey, _ := n.entry(i)
			n.at[i] = uint32(len(text))
			text = append(text, lengthAndKey...)
		}
	}
	n.text, n.deadBytes = text, 0
}
