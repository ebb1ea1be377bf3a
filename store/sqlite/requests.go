package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/headgate/headgate/law"
)

// requests has the requests with an id that a transaction has read or admitted.
type requests struct {
	ctx context.Context
	st  *statements

	byID    map[string]*idRequests
	changed []*request // these rows have to be written, in order

	hasEra    bool  // era and hasResets were read
	era       int64 // how often cells that remembered ids were reset
	hasResets bool  // the table resets may have rows
}

// idRequests has the requests of an id.
type idRequests struct {
	list      []*request
	isPartial bool // list may lack requests on one cell each
}

// request is a row of the table requests.
type request struct {
	number  int64 // 0: it is not in the file yet
	id      string
	several bool // the request has charges on several cells
	charges []charge
	isDirty bool // the request is in requests.changed
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

// maxSingles bounds how many requests of one id, each on one cell, are read at once. If there are more, for example
// because every user numbers their own requests, cells are looked up one by one.
const maxSingles = 32

// withID returns the requests of an id, which it reads from the file once.
func (q *requests) withID(id string) (*idRequests, error) {
	if same := q.byID[id]; same != nil {
		return same, nil
	}
	list, err := q.readRequests(id, q.st.findRequests, id)
	if err != nil {
		return nil, err
	}
	same := &idRequests{list: list}
	singles := 0
	for _, r := range list {
		if !r.several {
			singles++
		}
	}
	same.isPartial = singles > maxSingles
	if q.byID == nil {
		q.byID = map[string]*idRequests{}
	}
	q.byID[id] = same
	return same, nil
}

// readRequests returns the requests of an id that a statement selects.
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

// find returns the request of an id that has a charge on a cell, and the charge; nil if there is none.
func (q *requests) find(c law.Cell, id string) (*request, *charge, error) {
	same, err := q.withID(id)
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
	if !same.isPartial {
		return nil, nil, nil
	}
	list, err := q.readRequests(id, q.st.findRequestOfCell, id, c.Limit, c.Key)
	if err != nil || len(list) == 0 || len(list[0].charges) == 0 {
		return nil, nil, err
	}
	same.list = append(same.list, list[0])
	return list[0], &list[0].charges[0], nil
}

// readEra reads era and hasResets once.
func (q *requests) readEra() error {
	if q.hasEra {
		return nil
	}
	q.hasEra = true
	return q.st.era.QueryRowContext(q.ctx).Scan(&q.era, &q.hasResets)
}

// wasReset reports whether a cell was reset after an era.
func (q *requests) wasReset(c law.Cell, era int64) (bool, error) {
	if err := q.readEra(); err != nil || !q.hasResets {
		return false, err
	}
	var reset int64
	err := q.st.eraOfReset.QueryRowContext(q.ctx, c.Limit, c.Key).Scan(&reset)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return reset > era, err
}

// receipt returns the receipt of an id in a cell, even if it has expired; false if the cell has none.
func (q *requests) receipt(c law.Cell, id string) (a law.Receipt, ok bool, err error) {
	_, found, err := q.find(c, id)
	if err != nil || found == nil {
		return a, false, err
	}
	if reset, err := q.wasReset(c, found.Era); err != nil || reset {
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

// forget records that a cell was reset, before its row is removed.
func (q *requests) forget(c law.Cell) error {
	if err := q.readEra(); err != nil {
		return err
	}
	res, err := q.st.recordReset.ExecContext(q.ctx, c.Limit, c.Key, q.era+1)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 { // the cell remembered no id
		return err
	}
	q.era++
	_, err = q.st.setEra.ExecContext(q.ctx, q.era)
	return err
}

// admit adds a receipt to a cell, for save to write, after all calls of forget. New charges of a request share a row.
func (q *requests) admit(c law.Cell, a *law.Receipt) error {
	if err := q.readEra(); err != nil {
		return err
	}
	r, stored, err := q.find(c, a.ID)
	if err != nil {
		return err
	}
	ch := charge{
		Limit: c.Limit, Key: c.Key, Print: a.Fingerprint, Terms: a.Terms.String(), Cost: a.Cost, Outcome: a.Charged(),
		Settled: a.Settled, KeepUntil: a.KeepUntil, Era: q.era,
	}
	if stored != nil {
		*stored = ch
	} else {
		r = q.addNew(a.ID, ch)
	}
	if !r.isDirty {
		r.isDirty = true
		q.changed = append(q.changed, r)
	}
	return nil
}

// addNew adds a charge to the row of its request, which is not in the file yet, and makes the row for its first charge.
func (q *requests) addNew(id string, ch charge) *request {
	same := q.byID[id]
	for _, r := range same.list {
		if r.number == 0 && r.charges[0].Print == ch.Print {
			r.several = true
			r.charges = append(r.charges, ch)
			return r
		}
	}
	r := &request{id: id, charges: []charge{ch}}
	same.list = append(same.list, r)
	return r
}

// save writes the rows that have changed.
func (q *requests) save() error {
	for _, r := range q.changed {
		keepUntil := int64(0)
		for k := range r.charges {
			keepUntil = max(keepUntil, r.charges[k].KeepUntil)
		}
		charges, err := json.Marshal(r.charges)
		if err != nil {
			return err
		}
		if r.number > 0 {
			_, err = q.st.updateRequest.ExecContext(q.ctx, r.number, string(charges), keepUntil)
		} else {
			home := &r.charges[0] // the columns home_limit and home_key
			_, err = q.st.insertRequest.ExecContext(q.ctx, r.id, r.several, home.Limit, home.Key, string(charges),
				keepUntil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
