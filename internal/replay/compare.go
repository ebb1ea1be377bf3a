package replay

import (
	"fmt"
	"io"
	"strings"
)

// WriteAllText writes reports for people: a single report in full, several side by side in tables.
func WriteAllText(w io.Writer, reports []*Report) error {
	var b strings.Builder
	r := reports[0]
	if len(reports) == 1 {
		r.writeText(&b)
		_, err := io.WriteString(w, b.String())
		return err
	}
	r.writeLog(&b)
	b.WriteByte('\n')
	r.writeRequestCount(&b)
	r.writeLineCounts(&b)
	admitted, refused := resultWords(r.Fill)
	rows := [][]any{{"limit", admitted, refused, "share", "keys", "share"}}
	for _, r := range reports {
		rows = append(rows, []any{
			r.Notation, comma(r.Allowed), comma(r.Denied), formatFinePercent(r.Denied, r.Requests),
			comma(r.DeniedKeys), formatFinePercent(r.DeniedKeys, r.Keys),
		})
	}
	writeTable(&b, "  %10s  %10s  %8s  %10s  %8s", rows)
	writeKeyRows(&b, "key", refused, 8, TopKeyRows(reports, len(r.Top)))
	for _, r := range reports {
		fmt.Fprintf(&b, "\n%s\n  %s\n", r.Notation, r.Bound)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeKeyRows writes how many requests of each key each limit refuses, in columns of a width.
func writeKeyRows(b *strings.Builder, head, refused string, width int, keys []KeyRow) {
	if len(keys) == 0 {
		return
	}
	rows := [][]any{{head, "requests", "  " + refused + " by each limit, in their order"}}
	for _, k := range keys {
		denied := ""
		for _, n := range k.Denied {
			denied += fmt.Sprintf("  %*s", width, comma(n))
		}
		rows = append(rows, []any{displayKey(k.Key, 60), comma(k.Requests), denied})
	}
	writeTable(b, "  %10s%s", rows)
}

// KeyRow has the number of requests of a key that each limit refuses.
type KeyRow struct {
	Key      string  `json:"key"`
	Requests int64   `json:"requests"`
	Denied   []int64 `json:"denied"` // in the order of the limits
}

// TopKeyRows returns at most maxRows of the keys that the limits refuse most, from the Top of each limit by turns.
func TopKeyRows(reports []*Report, maxRows int) (rows []KeyRow) {
	seen := map[string]bool{}
	for i := range maxRows {
		for _, r := range reports {
			if i < len(r.Top) && !seen[r.Top[i].Key] && len(rows) < maxRows {
				seen[r.Top[i].Key] = true
				rows = append(rows, keyRow(reports, r.Top[i].Key))
			}
		}
	}
	return rows
}

func keyRow(reports []*Report, key string) KeyRow {
	number := reports[0].keyNumbers[key]
	row := KeyRow{Key: key, Requests: reports[0].tallies[number].requests}
	for _, r := range reports {
		row.Denied = append(row.Denied, r.tallies[number].denied)
	}
	return row
}
