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
	Percent *float64 `json:"percent"` // of the capacity in use; null if the capacity is unknown or 0
	Refused bool     `json:"refused"` // a cost of 1 would be refused now
	// RetryAfterMS is the time until a cost of 1 can pass: 0 means now, null never or unknown.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	// BlockedBy has the values of api.LimitUsage.BlockedBy.
	BlockedBy string `json:"blocked_by,omitempty"`

	neverPasses bool // a cost of 1 can never pass
}

// keyQuery selects the keys that list, top and export show.
type keyQuery struct {
	limit, prefix     string
	blocked, refusing bool
}

func (q *keyQuery) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&q.prefix, "prefix", "", "only keys that begin with `text`")
	cmd.Flags().BoolVar(&q.blocked, "blocked", false, "only what is blocked now")
	cmd.Flags().BoolVar(&q.refusing, "refusing", false, "only keys of which a cost of 1 would be refused now")
}

// setLimit takes the limit from the arguments of a command.
func (q *keyQuery) setLimit(args []string) {
	if len(args) > 0 {
		q.limit = args[0]
	}
}

// eachKey calls do with the selected keys after a cell, in the order of limits and keys, until do returns false.
func (q *keyQuery) eachKey(ctx context.Context, s backend, after law.Cell, do func(*keyUse) (bool, error)) error {
	in := api.CellsQuery{Limit: q.limit, Blocked: q.blocked, Max: store.DefaultMax}
	in.AfterLimit, in.AfterKey = after.Limit, after.Key
	if q.prefix != "" && after == (law.Cell{}) && headgate.ValidName(q.limit) == nil {
		in.AfterLimit, in.AfterKey = q.limit, keyBefore(q.prefix)
	}
	for {
		page, err := callCells(ctx, s, &in)
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
			use := newKeyUse(c)
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

// keyBefore returns a key that sorts before all keys with a prefix, and close to them: the list begins after it.
func keyBefore(prefix string) string {
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

// newKeyUse returns the use as the limit itself counts it, not an override or plan of the key; see loadRetry.
func newKeyUse(c *api.Status) *keyUse {
	u := &keyUse{Status: *c, RetryAfterMS: new(int64)}
	if u.BlockedUntil != nil && *u.BlockedUntil <= u.At { // the block is over
		u.BlockedUntil = nil
	}
	remaining, err := u.Remaining.Float64()
	u.Refused = u.BlockedUntil != nil || err == nil && remaining < 1
	if u.Refused || u.Remaining == "" {
		u.RetryAfterMS = nil
	}
	u.setPercent()
	return u
}

func (u *keyUse) setPercent() {
	u.Percent = nil
	capacity, _ := u.Capacity.Float64()
	if used, err := u.Used.Float64(); err == nil && capacity > 0 {
		u.Percent = new(100 * used / capacity)
	}
}

// loadRetry replaces the figures of a refused key by those of the limit, plan or override in force, and sets when it
// can pass. It leaves a key as it is if it is not refused or cannot be looked up.
func (u *keyUse) loadRetry(ctx context.Context, s backend) error {
	if !u.Refused {
		return nil
	}
	return u.loadInForce(ctx, s)
}

// loadInForce replaces the figures by those of the limit, plan or override in force, unless the key cannot be looked
// up.
func (u *keyUse) loadInForce(ctx context.Context, s backend) error {
	answer, err := callUsage(ctx, s, &api.UsageQuery{Key: u.Key, Limits: []string{u.Limit}})
	if isUnreadable(err) {
		return nil
	}
	if err != nil || len(answer.Limits) == 0 {
		return err
	}
	now := &answer.Limits[0]
	u.Status, u.RetryAfterMS = now.Status, now.RetryAfterMS
	u.neverPasses = u.RetryAfterMS == nil
	u.Refused = u.neverPasses || *u.RetryAfterMS > 0
	u.BlockedBy = now.BlockedBy
	u.setPercent()
	return nil
}

// keyOrders are the comparisons of --sort and top. sortedKeys sorts keys that compare as equal by limit and key.
var keyOrders = map[string]func(a, b *keyUse) int{
	"key": func(a, b *keyUse) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Limit, b.Limit))
	},
	"used": func(a, b *keyUse) int {
		x, _ := a.Used.Float64()
		y, _ := b.Used.Float64()
		return cmp.Compare(y, x)
	},
	"percent": func(a, b *keyUse) int { return cmp.Compare(b.percentRank(), a.percentRank()) },
	"retry":   func(a, b *keyUse) int { return cmp.Compare(b.retryRank(), a.retryRank()) },
	// top lists refused keys first, then the keys that are nearest to a refusal.
	"top": func(a, b *keyUse) int {
		return cmp.Or(cmp.Compare(boolToInt(b.Refused), boolToInt(a.Refused)),
			cmp.Compare(b.percentRank(), a.percentRank()), cmp.Compare(b.retryRank(), a.retryRank()))
	},
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (u *keyUse) percentRank() float64 {
	if u.Percent == nil {
		return -1
	}
	return *u.Percent
}

func (u *keyUse) retryRank() int64 {
	switch {
	case u.neverPasses:
		return headgate.Never.Milliseconds()
	case u.RetryAfterMS == nil:
		return -1
	}
	return *u.RetryAfterMS
}

// sortedKeys returns the first max of the selected keys in an order, or all if max is 0, and their number. It holds no
// more than twice max in memory, if max is not 0.
func (q *keyQuery) sortedKeys(ctx context.Context, s backend, order string, max int) (
	list []*keyUse, total int, err error,
) {
	compare := func(a, b *keyUse) int {
		return cmp.Or(keyOrders[order](a, b), strings.Compare(a.Limit, b.Limit), strings.Compare(a.Key, b.Key))
	}
	needsRetry := q.refusing || order == "retry" // for all keys, not only for those that are returned
	err = q.eachKey(ctx, s, law.Cell{}, func(u *keyUse) (bool, error) {
		if needsRetry {
			if err := u.loadRetry(ctx, s); err != nil {
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
		if err == nil && !needsRetry {
			err = u.loadRetry(ctx, s)
		}
	}
	if !needsRetry { // loadRetry has changed figures
		slices.SortFunc(list, compare)
	}
	return list, total, err
}

// storedKeys returns up to max of the selected keys after a cell, in the order of limits and keys, or all if max is 0,
// and whether there may be more.
func (q *keyQuery) storedKeys(ctx context.Context, s backend, after law.Cell, max int) (
	list []*keyUse, more bool, err error,
) {
	err = q.eachKey(ctx, s, after, func(u *keyUse) (bool, error) {
		if max > 0 && len(list) == max {
			more = true
			return false, nil
		}
		if err := u.loadRetry(ctx, s); err != nil {
			return false, err
		}
		if u.Refused || !q.refusing {
			list = append(list, u)
		}
		return true, nil
	})
	return list, more, err
}

// formatCursor returns the value of --after for the page after a key.
func formatCursor(u *keyUse) string {
	return base64.RawURLEncoding.EncodeToString([]byte(u.Limit + "\x00" + u.Key))
}

// parseCursor returns the cell that formatCursor has encoded; the zero cell is the start of the list.
func parseCursor(text string) (law.Cell, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	limit, key, ok := strings.Cut(string(raw), "\x00")
	if c := (law.Cell{Limit: limit, Key: key}); text == "" || err == nil && ok && c.ValidText() == nil {
		return c, nil
	}
	return law.Cell{}, headgate.Invalid("after", "%.40q is no place in a list; write what the page before ended with",
		text)
}
