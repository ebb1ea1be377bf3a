package replay

import (
	"encoding/json"
	"io"
	"time"

	"github.com/headgate/headgate"
)

// Seconds is a length of time, which is in seconds in JSON.
type Seconds struct{ time.Duration }

// MarshalJSON implements [json.Marshaler].
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(s.Seconds()) }

// Amount is a sum of costs, which is a number in JSON.
type Amount struct{ headgate.Amount }

// MarshalJSON implements [json.Marshaler].
func (a Amount) MarshalJSON() ([]byte, error) { return json.Marshal(a.Float64()) }

// WriteAllJSON writes reports as one JSON object: the report if there is one, else {"limits": [...]} with all.
func WriteAllJSON(w io.Writer, reports []*Report) error {
	if len(reports) == 1 {
		return writeJSON(w, reports[0])
	}
	return writeJSON(w, struct {
		Limits []*Report `json:"limits"`
	}{reports})
}

// WriteJSON writes the suggestion as one JSON object. Each limit of it has the members of its Report.
func (g *Suggestion) WriteJSON(w io.Writer) error {
	return writeJSON(w, struct {
		Refuse float64 `json:"refuse"`
		Of     string  `json:"of"`
		*Suggestion
	}{g.Ask.Refuse, g.Ask.of(), g})
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
