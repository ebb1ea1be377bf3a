// Package cells keeps cells in slices and maps, as simply as possible. Tests compare stores with it, and the
// simulator's database uses it.
package cells

import (
	"cmp"
	"maps"
	"slices"

	"github.com/headgate/headgate/law"
)

// Cell is a state with its log and its receipts. It implements law.Ledger and law.Receipts for its records.
type Cell struct {
	State    law.State
	Reason   string
	Entries  []law.Entry
	Receipts map[string]law.Receipt
}

// Clone returns a copy that may be changed. The clone of nil is an empty cell.
func (c *Cell) Clone() *Cell {
	if c == nil {
		return &Cell{Receipts: map[string]law.Receipt{}}
	}
	clone := *c
	clone.Entries, clone.Receipts = slices.Clone(c.Entries), maps.Clone(c.Receipts)
	return &clone
}

// Record returns the record by which package law decides about the cell.
func (c *Cell) Record() *law.Record {
	return &law.Record{State: c.State, Reason: c.Reason, Log: c, Receipts: c}
}

// Write writes the changes of a record into the cell. New entries get the numbers after lastNumber, which it raises.
func (c *Cell) Write(r *law.Record, lastNumber *int64) {
	entry := func(number int64) *law.Entry {
		return &c.Entries[slices.IndexFunc(c.Entries, func(e law.Entry) bool { return e.Number == number })]
	}
	if r.Clear {
		for i := range c.Entries {
			c.Entries[i].ExpiresAt = 0
		}
	}
	for _, renewal := range r.Renew {
		e := entry(renewal.Number)
		e.ExpiresAt, e.KeepUntil = renewal.To, max(e.KeepUntil, renewal.To)
	}
	for _, reduction := range r.Lower {
		e := entry(reduction.Number)
		if e.Cost -= reduction.Credits; e.Cost <= 0 {
			e.ExpiresAt = 0
		}
	}
	for i := range r.Add {
		*lastNumber++
		r.Add[i].Number = *lastNumber
		c.Entries = append(c.Entries, r.Add[i])
	}
	if r.Forget {
		clear(c.Receipts)
	}
	for _, receipt := range r.Admit {
		r.SetEntryNumber(&receipt.Outcome)
		c.Receipts[receipt.ID] = receipt
	}
	if r.Dirty {
		c.State, c.Reason = r.State, r.Reason
	}
}

func (c *Cell) Receipt(id string) (law.Receipt, bool) {
	receipt, ok := c.Receipts[id]
	return receipt, ok
}

func (c *Cell) Sum(after, upto int64) (sum int64) {
	for i := range c.Entries {
		if e := &c.Entries[i]; e.Granted && e.ExpiresAt > after && e.ExpiresAt <= upto {
			sum += e.Cost
		}
	}
	return sum
}

func (c *Cell) Freed(after, need int64) int64 {
	list := slices.DeleteFunc(slices.Clone(c.Entries), func(e law.Entry) bool {
		return !e.Granted || e.ExpiresAt <= after
	})
	slices.SortStableFunc(list, func(a, b law.Entry) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	for _, e := range list {
		if need -= e.Cost; need <= 0 {
			return e.ExpiresAt
		}
	}
	return law.Never
}

func (c *Cell) Entry(number int64) (credits, expiresAt int64) {
	for i := range c.Entries {
		if e := &c.Entries[i]; e.Number == number && e.Granted && e.ExpiresAt > 0 {
			return e.Cost, e.ExpiresAt
		}
	}
	return 0, 0
}
