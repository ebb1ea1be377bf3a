package replay

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteAllText writes reports for people: that of WriteText if there is one, else one table with a row for each.
func WriteAllText(w io.Writer, reports []*Report) error {
	r := reports[0]
	if len(reports) == 1 {
		return r.WriteText(w)
	}
	var b strings.Builder
	r.textLog(&b)
	b.WriteByte('\n')
	line := writer(&b)
	n := len(comma(r.Requests))
	line("requests", "%*s   from %s (%s)", n, comma(r.Requests), plural(int64(r.Keys), "key"), r.Field)
	r.textLines(&b)
	wide := len("limit")
	for _, r := range reports {
		wide = max(wide, utf8.RuneCountInString(r.Notation))
	}
	yes, no := r.words()
	fmt.Fprintf(&b, "\n%s  %10s  %10s  %8s  %10s  %8s\n", pad("limit", wide), yes, no, "share", "keys", "share")
	for _, r := range reports {
		fmt.Fprintf(&b, "%s  %10s  %10s  %8s  %10s  %8s\n", pad(r.Notation, wide), comma(r.Allowed), comma(r.Denied),
			finely(r.Denied, r.Requests), comma(int64(r.Refused)), finely(int64(r.Refused), int64(r.Keys)))
	}
	textKeys(&b, reports)
	for _, r := range reports {
		fmt.Fprintf(&b, "\n%s\n  %s\n", r.Notation, r.Bound)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// textKeys writes what each limit does to the keys that are refused most by any of them.
func textKeys(b *strings.Builder, reports []*Report) {
	keys := KeysOfAll(reports, len(reports[0].Top))
	if len(keys) == 0 {
		return
	}
	wide := len("key")
	for _, k := range keys {
		wide = max(wide, utf8.RuneCountInString(shorten(printable(k.Key), 60)))
	}
	_, no := reports[0].words()
	fmt.Fprintf(b, "\n%s  %10s  %s by each limit, in their order\n", pad("key", wide), "requests", no)
	for _, k := range keys {
		fmt.Fprintf(b, "%s  %10s", pad(shorten(printable(k.Key), 60), wide), comma(k.Requests))
		for _, n := range k.Denied {
			fmt.Fprintf(b, "  %8s", comma(n))
		}
		b.WriteByte('\n')
	}
}

// KeyRow is what several limits do to a key.
type KeyRow struct {
	Key      string
	Requests int64
	Denied   []int64 // by each limit
}

// KeysOfAll returns the keys that the limits refuse most, up to a number of them, with what each limit does to them:
// by turns one of each limit's Top.
func KeysOfAll(reports []*Report, most int) (rows []KeyRow) {
	seen := map[string]bool{}
	for i := 0; len(rows) < most; i++ {
		more := false
		for _, r := range reports {
			if i >= len(r.Top) {
				continue
			}
			more = true
			if k := r.Top[i]; !seen[k.Key] && len(rows) < most {
				seen[k.Key] = true
				rows = append(rows, rowOf(reports, k.Key))
			}
		}
		if !more {
			break
		}
	}
	return rows
}

// rowOf returns what several limits do to a key.
func rowOf(reports []*Report, key string) KeyRow {
	n := reports[0].number[key]
	row := KeyRow{Key: key, Requests: reports[0].tallies[n].requests}
	for _, r := range reports {
		row.Denied = append(row.Denied, r.tallies[n].denied)
	}
	return row
}
