package law

// Receipt is what a cell remembers of an admitted request with an ID, so that a repetition is not charged again, and
// the request can be settled.
type Receipt struct {
	ID          string
	Fingerprint int64     // of all charges of the request, see [Fingerprint]
	Terms       Terms     // terms of the limit when the charge was made
	Cost        int64     // credits charged to this cell in total
	Outcome     Outcome   // outcome of the first charge
	Extension   Extension // the last extension, if any
	Settled     int64     // actual cost in credits; Unsettled before the settlement, or Cancelled
	KeepUntil   int64     // from this time on the receipt is forgotten
}

// Extension is the last part of a charge of a bucket or window, charged by an op of verb Extend. Zero: there is none.
type Extension struct {
	Cost                int64 // credits
	Level, At, Returned int64 // the state of the cell after the extension, as in [Op]
}

// Terms are the parameters that decide how a charge drains: kind, anchor, unit, capacity, step and drain. A charge
// cannot be corrected under other terms than its own: credits that drained at the old rate would count as undrained.
type Terms [6]int64

// Terms returns the terms of a limit.
func (p *Params) Terms() Terms {
	return Terms{int64(p.Kind), int64(p.Anchor), p.Unit, p.Capacity, p.Step, p.Drain}
}

// Receipts looks up the receipts of a cell.
type Receipts interface {
	// Receipt returns the receipt of an ID, even after its KeepUntil; false if there is none.
	Receipt(id string) (Receipt, bool)
}

// Record is a cell while a batch is applied to it. A store that decides in its own process fills the first four fields,
// calls [Apply], and then carries out the other fields, those from Clear on in their order here.
type Record struct {
	State    State
	Reason   string   // reason of the last block
	Log      Ledger   // nil unless the op's law is Log
	Receipts Receipts // nil unless an op has an ID

	Dirty  bool      // State or Reason changed and must be written
	Gone   bool      // the cell was reset; if State is fresh again, it must be removed
	Clear  bool      // entries that were in the log before the batch count no more
	Renew  []Renewed // entries that count for longer
	Lower  []Lowered // entries whose credits changed; an entry without credits counts no more
	Add    []Entry   // new entries to append to the log, in order; their Number is unset
	Forget bool      // all receipts from before the batch are forgotten
	Admit  []Receipt // receipts to store, in order; each replaces one with the same ID

	// The request that is being applied.
	group   int    // identifies the request that the next fields belong to
	pending int64  // credits that its ops so far have charged to this cell
	tent    State  // tentative state, with these charges
	tentLog Ledger // tentative log
}

// Lowered is an entry of the log whose credits were corrected. An entry with no credits left gets ExpiresAt 0.
type Lowered struct {
	Number    int64
	Credits   int64 // credits given back; less than 0: charged in addition
	ExpiresAt int64 // ExpiresAt of the entry
}

// SetEntryNumber replaces the provisional EntryNumber of an outcome by the number under which the store keeps the
// entry, once the store has set the numbers of Add.
func (r *Record) SetEntryNumber(out *Outcome) {
	if out.EntryNumber < 0 {
		out.EntryNumber = r.Add[-out.EntryNumber-1].Number
	}
}

// Renewed is an entry of the log that counts for longer than before.
type Renewed struct {
	Number   int64
	Credits  int64
	From, To int64 // the old and the new ExpiresAt; KeepUntil must be at least To
}

// The special values of Receipt.Settled.
const (
	Unsettled = -1 // the request was not settled
	// the request was cancelled, by an op of verb Settle with Cancelled as its Cost: it costs nothing, and its ID may
	// be admitted again. A request settled at cost 0 is replayed instead.
	Cancelled = -2
)
