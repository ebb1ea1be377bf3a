package forwardauth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/rules"
)

// SettlePath is where a proxy sends the response to a request, to settle the charges of the request.
const SettlePath = Path + "/settle"

// SettleHeader is the header of an answer with the estimates to settle. The proxy sends it back with the response.
const SettleHeader = "Headgate-Settle"

// receipt is the value of SettleHeader. It needs no signature: it names charges and the id that they were made under,
// and a caller may settle its own ids without a receipt too.
type receipt struct {
	ID      string     `json:"id"`
	Charges []estimate `json:"charges"`
}

// estimate is a charge whose actual cost is in the response.
type estimate struct {
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	Header string `json:"header,omitempty"` // name of a header with the cost
	JSON   string `json:"json,omitempty"`   // path of the cost in a JSON body; empty: the cost is in Header
}

// setReceipt writes the receipt of the charges that are to be settled into the header of an answer.
func setReceipt(w http.ResponseWriter, id string, m *rules.Match) {
	if len(m.Settle) == 0 {
		return
	}
	r := receipt{ID: id, Charges: make([]estimate, len(m.Settle))}
	for i, s := range m.Settle {
		c := &m.Charges[s.Charge]
		r.Charges[i] = estimate{Limit: c.Limit.Name(), Key: c.Key, Header: s.Header, JSON: s.JSON}
	}
	text, err := json.Marshal(r)
	if err != nil { // impossible: it has only strings
		return
	}
	w.Header().Set(SettleHeader, base64.RawURLEncoding.EncodeToString(text))
}

// Settle corrects the charges of a request by the header and the body of its response. An estimate remains if its cost
// is not in the response; if no cost is in the response, that is an error.
func (h *Handler) Settle(ctx context.Context, header http.Header, body []byte) (*api.Settled, error) {
	text, err := base64.RawURLEncoding.DecodeString(header.Get(SettleHeader))
	var r receipt
	if err != nil || json.Unmarshal(text, &r) != nil || r.ID == "" || len(r.Charges) == 0 {
		return nil, headgate.Invalid(SettleHeader, "is missing, or is not what %s has answered", Path)
	}
	in := &api.Settle{ID: r.ID}
	var missing error
	for _, e := range r.Charges {
		switch http.CanonicalHeaderKey(e.Header) {
		case auth.TokenHeader, "Authorization": // the error of a value that is no cost would reveal it
			return nil, headgate.Invalid(SettleHeader, "is not what %s has answered", Path)
		}
		cost := header.Get(e.Header)
		if e.JSON != "" {
			number, err := httpkey.JSONNumber(body, e.JSON)
			if err != nil {
				missing = cmp.Or(missing, headgate.Invalid("body", "%v; the estimate stays", err))
				continue
			}
			cost = number.String()
		} else if cost == "" {
			missing = cmp.Or(missing, headgate.Invalid(e.Header, "is missing; the estimate stays"))
			continue
		}
		in.Charges = append(in.Charges, api.Charge{Limit: e.Limit, Key: e.Key, Cost: json.Number(cost)})
	}
	if len(in.Charges) == 0 {
		return nil, missing
	}
	return h.service.Settle(ctx, in)
}
