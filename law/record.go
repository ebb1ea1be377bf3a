package law

// Receipt is what a cell remembers of a request with an ID that was admitted:
// so that it is not charged again when it is repeated, and can be settled.
type Receipt struct {
	ID          string
	Fingerprint int64   // of all charges of the request, see [Fingerprint]
	Terms       Terms   // of the limit at that time
	Cost        int64   // credits charged to this cell in all
	Outcome     Outcome // of the first charge
	Extension   Extension
	Settled     int64 // credits that it cost in the end; Unsettled before that is known, or Cancelled
	KeepUntil   int64 // it is forgotten from here on
}

// Extension is the part of a charge that was charged last, by an op of verb Extend to a bucket
// or to windows. The zero Extension is none.
type Extension struct {
	Cost                int64 // credits
	Level, At, Returned int64 // what it made of the cell: see [Op]
}

// Terms are the parameters that say what becomes of a charge: kind, anchor, unit,
// capacity, step and drain. By others than those it was made under it cannot be
// corrected: what has drained at the old rate would seem not to have.
type Terms [6]int64

// Terms returns the rule of a limit.
func (p *Params) Terms() Terms {
	return Terms{int64(p.Kind), int64(p.Anchor), p.Unit, p.Capacity, p.Step, p.Drain}
}

// Receipts has the receipts of a cell.
type Receipts interface {
	// Receipt returns the admission of an ID, also one that should be
	// forgotten; false if there is none.
	Receipt(id string) (Receipt, bool)
}

// Record is a cell while a batch is applied to it. A store that decides in
// its own process fills State, Reason and Log, calls [Apply], and then does
// what the other fields say, in the order they stand here.
type Record struct {
	State    State
	Reason   string   // of the last block
	Log      Ledger   // nil unless the op's law is Log
	Receipts Receipts // nil unless an op has an ID

	Dirty  bool      // State or Reason changed and must be written
	Gone   bool      // the cell was reset; if State is fresh again, it must be removed
	Clear  bool      // entries that were in the log before the batch count no more
	Renew  []Renewed // entries that count for longer
	Lower  []Lowered // entries whose credits changed; one that has none left counts no more
	Add    []Entry   // to be appended to the log, in order; Number is unset
	Forget bool      // admissions that were in the register before the batch are forgotten
	Admit  []Receipt // to be put into the register, in order, in the place of those of the same ID

	// What the request under way has done so far.
	group   int
	pending int64
	tent    State
	tentLog Ledger
}

// Lowered is an entry of the log of which a part was given back. One with no
// credits left has ExpiresAt 0 from then on.
type Lowered struct {
	Number    int64
	Credits   int64 // given back; less than 0: charged in addition
	ExpiresAt int64 // of the entry
}

// Number replaces the Entry of an outcome by the number under which the store
// keeps it, once those of Add are known.
func (r *Record) Number(out *Outcome) {
	if out.EntryNumber < 0 {
		out.EntryNumber = r.Add[-out.EntryNumber-1].Number
	}
}

// Renewed is an entry of the log that counts for longer than before.
type Renewed struct {
	Number   int64
	Credits  int64
	From, To int64 // ExpiresAt before and from now on; KeepUntil is no earlier
}

// Unsettled is the Settled of an admission that was not settled. Cancelled is that of
// one that was taken back, and the Cost of an op of verb Settle that does so: it costs
// nothing, and its ID may be admitted again. One that was settled at no cost is
// answered as it was admitted.
const (
	Unsettled = -1
	Cancelled = -2
)
