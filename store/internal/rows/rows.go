// Package rows decides batches over the rows of a database: a store locks and reads the rows of all cells, package law
// decides, and the store writes the changes.
package rows

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// Reader reads the logs and the receipts of the cells of a batch.
type Reader interface {
	// Sum returns the credits of the entries that expire later than after, and not later than upto.
	Sum(cell law.Cell, after, upto int64) (int64, error)
	// Freed returns the first time by which entries that expire later than after, with need credits in total, have
	// expired; law.Never if all such entries have fewer credits.
	Freed(cell law.Cell, after, need int64) (int64, error)
	// Entry returns the entry with a number if it still counts, else zeros.
	Entry(cell law.Cell, number int64) (credits, expiresAt int64, err error)
	// Receipt returns the receipt of an id, even if it has expired; false if the cell has no such receipt.
	Receipt(cell law.Cell, id string) (law.Receipt, bool, error)
}

// Cell is a cell of a batch, with the changes that the store has to write.
type Cell struct {
	law.Record
	Name  law.Cell
	Found bool // the store has a row for the cell

	batch *Batch
}

// Batch decides ops over cells. Make one by [New], fill State, Reason and Found of its cells, call [Batch.Decide], and
// write the records of the cells.
type Batch struct {
	Cells []*Cell // each once, in the order of law.Cell.Compare, in which they are locked

	reader  Reader
	ops     []law.Op
	records []*law.Record // for each op, the record of its cell; of an invalid group, an empty record
	err     error         // the reader's first error
}

// New returns a batch of ops. Its Cells leave out the cells of invalid groups, which are not applied.
func New(ops []law.Op, reader Reader) *Batch {
	b := &Batch{reader: reader, ops: ops, records: make([]*law.Record, len(ops)), Cells: make([]*Cell, 0, len(ops))}
	sorted := make([]int, 0, len(ops)) // the indexes of the valid ops, by cell
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		isValid := law.ValidGroup(ops[i:j]) == nil
		for ; i < j; i++ {
			if isValid {
				sorted = append(sorted, i)
			} else {
				b.records[i] = &law.Record{}
			}
		}
	}
	slices.SortFunc(sorted, func(i, j int) int { return ops[i].Cell.Compare(ops[j].Cell) })
	for k, i := range sorted {
		if k > 0 && ops[i].Cell == ops[sorted[k-1]].Cell {
			b.records[i] = b.records[sorted[k-1]]
			continue
		}
		c := &Cell{Name: ops[i].Cell, batch: b}
		c.Log, c.Receipts = c, c
		b.Cells = append(b.Cells, c)
		b.records[i] = &c.Record
	}
	return b
}

// Cell returns the cell with a name; nil if no valid op is on it.
func (b *Batch) Cell(name law.Cell) *Cell {
	i, found := slices.BinarySearchFunc(b.Cells, name, func(c *Cell, name law.Cell) int { return c.Name.Compare(name) })
	if !found {
		return nil
	}
	return b.Cells[i]
}

// Decide writes the outcomes of all ops, and the changes of all cells. clock must be read after all rows are locked. An
// error is the reader's first one; after it neither outcomes nor changes may be used.
func (b *Batch) Decide(outs []law.Outcome, clock int64) error {
	law.Apply(b.ops, outs, clock, b.records)
	return b.err
}

// SetEntryNumbers sets the numbers of new entries in the outcomes. The store has set those in Add of the cells before.
func (b *Batch) SetEntryNumbers(outs []law.Outcome) {
	for i := range outs {
		b.records[i].SetEntryNumber(&outs[i])
	}
}

// keepError keeps the first error.
func (b *Batch) keepError(err error) {
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
	c.batch.keepError(err)
	return sum
}

// Freed implements law.Ledger.
func (c *Cell) Freed(after, need int64) int64 {
	if c.batch.err != nil {
		return law.Never
	}
	at, err := c.batch.reader.Freed(c.Name, after, need)
	if err != nil {
		c.batch.keepError(err)
		return law.Never // after any other time a law might call Freed again, for ever
	}
	return at
}

// Entry implements law.Ledger.
func (c *Cell) Entry(number int64) (credits, expiresAt int64) {
	if c.batch.err != nil {
		return 0, 0
	}
	credits, expiresAt, err := c.batch.reader.Entry(c.Name, number)
	c.batch.keepError(err)
	return credits, expiresAt
}

// Receipt implements law.Receipts.
func (c *Cell) Receipt(id string) (a law.Receipt, ok bool) {
	if !c.Found || c.batch.err != nil { // a cell stays for as long as it remembers a request
		return a, false
	}
	a, ok, err := c.batch.reader.Receipt(c.Name, id)
	c.batch.keepError(err)
	return a, ok
}
