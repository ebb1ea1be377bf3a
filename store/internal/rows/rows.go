// Package rows decides batches over the rows of a database: a store locks and reads the rows of all cells, package law
// decides, and the store writes the changes.
package rows

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// Reader reads the log and the receipts of a locked cell.
type Reader interface {
	// Sum returns the credits of entries that expire after one time, and not after another.
	Sum(cell law.Cell, after, upto int64) (int64, error)
	// Freed returns when enough entries that expire after a time have expired to free need; law.Never if all of them
	// are too little.
	Freed(cell law.Cell, after, need int64) (int64, error)
	// Entry returns an entry that counts; zeros if there is none.
	Entry(cell law.Cell, number int64) (credits, expiresAt int64, err error)
	// Receipt also returns one that has expired; false if there is none.
	Receipt(cell law.Cell, id string) (law.Receipt, bool, error)
}

// Cell is a cell of a batch.
type Cell struct {
	law.Record
	Name  law.Cell
	Found bool // its row is there

	batch *Batch
}

// Batch decides ops over cells. Make one by [New], fill State, Reason and Found of its cells, call [Batch.Decide], and
// write the records of the cells.
type Batch struct {
	Cells []*Cell // each once, in the order in which they are locked: that of law.Cell.Compare

	reader  Reader
	ops     []law.Op
	records []*law.Record // of each op
	err     error         // the first of the reader
}

// New leaves out the cells of invalid groups, which are not applied.
func New(ops []law.Op, reader Reader) *Batch {
	b := &Batch{reader: reader, ops: ops, records: make([]*law.Record, len(ops)), Cells: make([]*Cell, 0, len(ops))}
	order := make([]int, 0, len(ops))
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		valid := law.ValidGroup(ops[i:j]) == nil
		for ; i < j; i++ {
			if valid {
				order = append(order, i)
			} else {
				b.records[i] = &law.Record{}
			}
		}
	}
	slices.SortFunc(order, func(i, j int) int { return ops[i].Cell.Compare(ops[j].Cell) })
	for k, i := range order {
		if k > 0 && ops[i].Cell == ops[order[k-1]].Cell {
			b.records[i] = b.records[order[k-1]]
			continue
		}
		c := &Cell{Name: ops[i].Cell, batch: b}
		c.Log, c.Receipts = c, c
		b.Cells = append(b.Cells, c)
		b.records[i] = &c.Record
	}
	return b
}

// Cell returns a cell by its name, or nil.
func (b *Batch) Cell(name law.Cell) *Cell {
	i, found := slices.BinarySearchFunc(b.Cells, name, func(c *Cell, name law.Cell) int { return c.Name.Compare(name) })
	if !found {
		return nil
	}
	return b.Cells[i]
}

// Decide needs a clock that was read after all rows were locked. After an error, which is the reader's, outs must not
// be used.
func (b *Batch) Decide(outs []law.Outcome, clock int64) error {
	law.Apply(b.ops, outs, clock, b.records)
	return b.err
}

// Number sets the numbers of new entries in the outcomes, once those of Add are known.
func (b *Batch) Number(outs []law.Outcome) {
	for i := range outs {
		b.records[i].Number(&outs[i])
	}
}

func (b *Batch) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Sum implements law.Ledger.
func (c *Cell) Sum(after, upto int64) int64 {
	if after >= upto || c.batch.err != nil {
		return 0
	}
	sum, err := c.batch.reader.Sum(c.Name, after, upto)
	c.batch.note(err)
	return sum
}

// Freed implements law.Ledger.
func (c *Cell) Freed(after, need int64) int64 {
	if c.batch.err != nil {
		return law.Never
	}
	at, err := c.batch.reader.Freed(c.Name, after, need)
	if err != nil {
		c.batch.note(err)
		return law.Never // a law repeats Freed until it is enough
	}
	return at
}

// Entry implements law.Ledger.
func (c *Cell) Entry(number int64) (credits, expiresAt int64) {
	if c.batch.err != nil {
		return 0, 0
	}
	credits, expiresAt, err := c.batch.reader.Entry(c.Name, number)
	c.batch.note(err)
	return credits, expiresAt
}

// Receipt implements law.Receipts.
func (c *Cell) Receipt(id string) (a law.Receipt, ok bool) {
	if !c.Found || c.batch.err != nil { // a cell stays for as long as it remembers a request
		return a, false
	}
	a, ok, err := c.batch.reader.Receipt(c.Name, id)
	c.batch.note(err)
	return a, ok
}
