package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/headgate/headgate/law"
)

// requests are the requests with an id that a transaction has read, or has admitted.
type requests struct {
	ctx context.Context
	st  *statements

	byID  map[string]*sameID
	order []*request // that are to be written

	read   bool  // the following two were
	era    int64 // how often a cell was reset in which ids were known
	resets bool  // there may be rows about that
}

// sameID are the requests of an id.
type sameID struct {
	list []*request
	more bool // there may be others, each on one cell
}

// request is a row of requests.
type request struct {
	number  int64 // 0: it is not in the file yet
	id      string
	several bool
	charges []charge
	dirty   bool // it is in order
}

// charge is the receipt of a request in a cell.
type charge struct {
	Limit     string `json:"limit"`
	Key       string `json:"key"`
	Print     int64  `json:"print"`
	Terms     string `json:"terms"`
	Cost      int64  `json:"cost"`
	Outcome   string `json:"outcome"`
	Settled   int64  `json:"settled"`
	KeepUntil int64  `json:"keep_until"`
	Era       int64  `json:"era"`
}

// maxAlike bounds the requests of one id, each on one cell, that are read to find one. If there are more, as where
// every user numbers his own requests, cells are looked up one by one.
const maxAlike = 32

// ofID returns the requests of an id.
func (q *requests) ofID(id string) (*sameID, error) {
	if same := q.byID[id]; same != nil {
		return same, nil
	}
	list, err := q.readRequests(id, q.st.known, id)
	if err != nil {
		return nil, err
	}
	same := &sameID{list: list}
	single := 0
	for _, r := range list {
		if !r.several {
			single++
		}
	}
	same.more = single > maxAlike
	if q.byID == nil {
		q.byID = map[string]*sameID{}
	}
	q.byID[id] = same
	return same, nil
}

func (q *requests) readRequests(id string, stmt *sql.Stmt, args ...any) (list []*request, err error) {
	rows, err := stmt.QueryContext(q.ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		r := &request{id: id}
		var charges []byte
		if err := rows.Scan(&r.number, &r.several, &charges); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(charges, &r.charges); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// find returns the request of an id that has a charge of a cell, and that; nil if there is none.
func (q *requests) find(c law.Cell, id string) (*request, *charge, error) {
	same, err := q.ofID(id)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range same.list {
		for k := range r.charges {
			if r.charges[k].Key == c.Key && r.charges[k].Limit == c.Limit {
				return r, &r.charges[k], nil
			}
		}
	}
	if !same.more {
		return nil, nil, nil
	}
	list, err := q.readRequests(id, q.st.knownHere, id, c.Limit, c.Key)
	if err != nil || len(list) == 0 || len(list[0].charges) == 0 {
		return nil, nil, err
	}
	same.list = append(same.list, list[0])
	return list[0], &list[0].charges[0], nil
}

// readEra reads how often cells were reset in which ids were known.
func (q *requests) readEra() error {
	if q.read {
		return nil
	}
	q.read = true
	return q.st.era.QueryRowContext(q.ctx).Scan(&q.era, &q.resets)
}

// forgotten reports whether a cell was reset after an era.
func (q *requests) forgotten(c law.Cell, era int64) (bool, error) {
	if err := q.readEra(); err != nil || !q.resets {
		return false, err
	}
	var reset int64
	err := q.st.reset.QueryRowContext(q.ctx, c.Limit, c.Key).Scan(&reset)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return reset > era, err
}

// receipt returns what a cell remembers of an id, if it knows that.
func (q *requests) receipt(c law.Cell, id string) (a law.Receipt, ok bool, err error) {
	_, found, err := q.find(c, id)
	if err != nil || found == nil {
		return a, false, err
	}
	if gone, err := q.forgotten(c, found.Era); err != nil || gone {
		return a, false, err
	}
	if err := a.SetCharged(found.Outcome); err != nil {
		return a, false, err
	}
	if a.Terms, err = law.ParseTerms(found.Terms); err != nil {
		return a, false, err
	}
	a.ID, a.Fingerprint, a.Cost, a.Settled, a.KeepUntil = id, found.Print, found.Cost, found.Settled, found.KeepUntil
	return a, true, nil
}

// forget writes down that a cell was reset, before it is removed.
func (q *requests) forget(c law.Cell) error {
	if err := q.readEra(); err != nil {
		return err
	}
	res, err := q.st.forget.ExecContext(q.ctx, c.Limit, c.Key, q.era+1)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 { // no id was known
		return err
	}
	q.era++
	_, err = q.st.setEra.ExecContext(q.ctx, q.era)
	return err
}

// admit notes what a cell remembers from now on: after all that is forgotten. Charges of one
// request that are new go into one row.
func (q *requests) admit(c law.Cell, a *law.Receipt) error {
	if err := q.readEra(); err != nil {
		return err
	}
	r, was, err := q.find(c, a.ID)
	if err != nil {
		return err
	}
	is := charge{
		Limit: c.Limit, Key: c.Key, Print: a.Fingerprint, Terms: a.Terms.String(), Cost: a.Cost, Outcome: a.Charged(),
		Settled: a.Settled, KeepUntil: a.KeepUntil, Era: q.era,
	}
	if was != nil {
		*was = is
	} else {
		r = q.newRow(a.ID, is)
	}
	if !r.dirty {
		r.dirty = true
		q.order = append(q.order, r)
	}
	return nil
}

// newRow puts a charge into a row that is not in the file: that of the charges of its request, if
// there is one.
func (q *requests) newRow(id string, is charge) *request {
	same := q.byID[id]
	for _, r := range same.list {
		if r.number == 0 && r.charges[0].Print == is.Print {
			r.several = true
			r.charges = append(r.charges, is)
			return r
		}
	}
	r := &request{id: id, charges: []charge{is}}
	same.list = append(same.list, r)
	return r
}

// save writes the rows that have changed.
func (q *requests) save() error {
	for _, r := range q.order {
		until := int64(0)
		for k := range r.charges {
			until = max(until, r.charges[k].KeepUntil)
		}
		charges, err := json.Marshal(r.charges)
		if err != nil {
			return err
		}
		if r.number > 0 {
			_, err = q.st.readmit.ExecContext(q.ctx, r.number, string(charges), until)
		} else {
			home := &r.charges[0]
			_, err = q.st.admit.ExecContext(q.ctx, r.id, r.several, home.Limit, home.Key, string(charges), until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
