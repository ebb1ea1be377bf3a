package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// keyUse is the use of a limit by a key, in list, top and export.
type keyUse struct {
	api.Status
	Percent *float64 `json:"percent"` // of the capacity; null: that is not known, or 0
	Refused bool     `json:"refused"` // a cost of 1 would be refused now
	// RetryAfterMS is the time until a cost of 1 can pass; 0: it can now, null: never, or not known.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	// BlockedBy is that of a usage.
	BlockedBy string `json:"blocked_by,omitempty"`

	never bool // a cost of 1 can never pass
}

// keyQuery selects the keys that list, top and export show.
type keyQuery struct {
	limit, prefix     string
	blocked, refusing bool
}

func (q *keyQuery) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&q.prefix, "prefix", "", "only keys that begin with `text`")
	cmd.Flags().BoolVar(&q.blocked, "blocked", false, "only what is blocked now")
	cmd.Flags().BoolVar(&q.refusing, "refusing", false, "only keys of which a cost of 1 would be refused now")
}

// of takes the limit from the arguments of a command.
func (q *keyQuery) of(args []string) {
	if len(args) > 0 {
		q.limit = args[0]
	}
}

// each hands over the keys after a cell, in the order of limits and keys, page by page, until do wants no more.
func (q *keyQuery) each(ctx context.Context, s backend, after law.Cell, do func(*keyUse) (more bool, err error)) error {
	in := api.CellsQuery{Limit: q.limit, Blocked: q.blocked, Max: store.DefaultMax}
	in.AfterLimit, in.AfterKey = after.Limit, after.Key
	if q.prefix != "" && after == (law.Cell{}) && headgate.ValidName(q.limit) == nil {
		in.AfterLimit, in.AfterKey = q.limit, beforeAll(q.prefix)
	}
	for {
		page, err := askCells(ctx, s, &in)
		if err != nil {
			return err
		}
		for i := range page.Cells {
			c := &page.Cells[i]
			if service.IsProbe(c.Limit, c.Key) {
				continue
			}
			if !strings.HasPrefix(c.Key, q.prefix) {
				if q.limit != "" && c.Key > q.prefix {
					return nil
				}
				continue
			}
			use := useOf(c)
			if q.refusing && !use.Refused {
				continue
			}
			if more, err := do(use); err != nil || !more {
				return err
			}
		}
		if len(page.Cells) < store.DefaultMax {
			return nil
		}
		last := &page.Cells[len(page.Cells)-1]
		in.AfterLimit, in.AfterKey = last.Limit, last.Key
	}
}

// beforeAll returns a key that stands before all keys with a prefix, and close to them.
func beforeAll(prefix string) string {
	r, size := utf8.DecodeLastRuneInString(prefix)
	head := prefix[:len(prefix)-size]
	if r--; !utf8.ValidRune(r) || r < ' ' {
		return head
	}
	if k := head + string(r) + string(utf8.MaxRune); len(k) <= law.MaxKey {
		return k
	}
	return head
}

// useOf returns the use by a key's limit, not by what replaces that for the key.
func useOf(c *api.Status) *keyUse {
	u := &keyUse{Status: *c, RetryAfterMS: new(int64)}
	if u.BlockedUntil != nil && *u.BlockedUntil <= u.At { // it is over
		u.BlockedUntil = nil
	}
	u.Refused = u.BlockedUntil != nil || u.Remaining == "0"
	if u.Refused || u.Remaining == "" {
		u.RetryAfterMS = nil
	}
	u.measure()
	return u
}

// measure computes the percentage.
func (u *keyUse) measure() {
	u.Percent = nil
	most, _ := u.Capacity.Float64()
	if used, err := u.Used.Float64(); err == nil && most > 0 {
		percent := 100 * used / most
		u.Percent = &percent
	}
}

// ask reads when a refused key can pass, and what is in force for it.
func (u *keyUse) ask(ctx context.Context, s backend) error {
	if !u.Refused {
		return nil
	}
	answer, err := askUsage(ctx, s, &api.UsageQuery{Key: u.Key, Limits: []string{u.Limit}})
	if unreadable(err) {
		return nil
	}
	if err != nil || len(answer.Limits) == 0 {
		return err
	}
	now := &answer.Limits[0]
	u.Status, u.RetryAfterMS = now.Status, now.RetryAfterMS
	u.never = u.RetryAfterMS == nil
	u.Refused = u.never || *u.RetryAfterMS > 0
	u.BlockedBy = now.BlockedBy
	u.measure()
	return nil
}

// orders are the orders of a list. What they call equal stands in the order of limits and keys.
var orders = map[string]func(a, b *keyUse) int{
	"key": func(a, b *keyUse) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Limit, b.Limit))
	},
	"used": func(a, b *keyUse) int {
		x, _ := a.Used.Float64()
		y, _ := b.Used.Float64()
		return cmp.Compare(y, x)
	},
	"percent": func(a, b *keyUse) int { return cmp.Compare(b.share(), a.share()) },
	"retry":   func(a, b *keyUse) int { return cmp.Compare(b.wait(), a.wait()) },
	// what is refused, then what is nearest to that
	"top": func(a, b *keyUse) int {
		return cmp.Or(cmp.Compare(worth(b.Refused), worth(a.Refused)), cmp.Compare(b.share(), a.share()),
			cmp.Compare(b.wait(), a.wait()))
	},
}

func worth(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (u *keyUse) share() float64 {
	if u.Percent == nil {
		return -1
	}
	return *u.Percent
}

func (u *keyUse) wait() int64 {
	switch {
	case u.never:
		return headgate.Never.Milliseconds()
	case u.RetryAfterMS == nil:
		return -1
	}
	return *u.RetryAfterMS
}

// sorted returns the first keys of an order, at most max of them, or all if that is 0, and how many there are.
// It holds no more than twice as many.
func (q *keyQuery) sorted(ctx context.Context, s backend, order string, max int) (
	list []*keyUse, total int, err error,
) {
	compare := func(a, b *keyUse) int {
		return cmp.Or(orders[order](a, b), strings.Compare(a.Limit, b.Limit), strings.Compare(a.Key, b.Key))
	}
	early := q.refusing || order == "retry"
	err = q.each(ctx, s, law.Cell{}, func(u *keyUse) (bool, error) {
		if early {
			if err := u.ask(ctx, s); err != nil {
				return false, err
			}
			if q.refusing && !u.Refused {
				return true, nil
			}
		}
		total++
		if list = append(list, u); max > 0 && len(list) >= 2*max {
			slices.SortFunc(list, compare)
			list = slices.Delete(list, max, len(list))
		}
		return true, nil
	})
	slices.SortFunc(list, compare)
	if max > 0 && len(list) > max {
		list = list[:max]
	}
	for _, u := range list {
		if err == nil && !early {
			err = u.ask(ctx, s)
		}
	}
	if !early {
		slices.SortFunc(list, compare)
	}
	return list, total, err
}

// inOrder returns the keys after a cell in the order in which they are stored, at most max of them, or all
// if that is 0, and whether there are more.
func (q *keyQuery) inOrder(ctx context.Context, s backend, after law.Cell, max int) (
	list []*keyUse, more bool, err error,
) {
	err = q.each(ctx, s, after, func(u *keyUse) (bool, error) {
		if max > 0 && len(list) == max {
			more = true
			return false, nil
		}
		if err := u.ask(ctx, s); err != nil {
			return false, err
		}
		if u.Refused || !q.refusing {
			list = append(list, u)
		}
		return true, nil
	})
	return list, more, err
}

// cursor writes the place after a key, for --after.
func cursor(u *keyUse) string {
	return base64.RawURLEncoding.EncodeToString([]byte(u.Limit + "\x00" + u.Key))
}

// placeAfter reads what cursor has written.
func placeAfter(text string) (law.Cell, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	limit, key, ok := strings.Cut(string(raw), "\x00")
	if c := (law.Cell{Limit: limit, Key: key}); text == "" || err == nil && ok && c.ValidText() == nil {
		return c, nil
	}
	return law.Cell{}, headgate.Invalid("after", "%.40q is no place in a list; write what the page before ended with",
		text)
}
