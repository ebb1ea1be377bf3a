package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/law"
)

// mostLately is how many keys a server tells of at most.
const mostLately = 100

// lately returns up to most keys that a server has decided about in the last five minutes: those that were refused
// most, then those that have used most. The head tells how much is decided.
func (t *topping) lately(ctx context.Context, s *remote, most int) (rows []topRow, head string, err error) {
	const seconds = 10
	seen := map[law.Cell]bool{}
	for _, by := range []string{api.ByRefused, api.ByUsed} {
		q := &api.TrafficQuery{Limit: t.limit, By: by, Top: mostLately, Seconds: seconds}
		if t.prefix == "" {
			q.Top = min(most, mostLately)
		}
		answer, err := get[api.Traffic](ctx, s, "/v1/traffic", q)
		if err != nil {
			return nil, "", err
		}
		head = rates(answer.Limits, seconds)
		if answer.Problem != nil {
			head += "; " + text(answer.Problem.Title)
		}
		for i := range answer.Keys {
			k := &answer.Keys[i]
			c := law.Cell{Limit: k.Limit, Key: k.Key}
			none := by == api.ByRefused && figure(k.Refused) == 0
			if none || seen[c] || !strings.HasPrefix(k.Key, t.prefix) || len(rows) == most {
				continue
			}
			seen[c] = true
			rows = append(rows, rowOf(k))
		}
	}
	return rows, head, nil
}

// rates tells how much was decided a second.
func rates(limits []api.LimitTraffic, seconds int) string {
	var admitted, refused, failed float64
	sum := func(to *float64, counts []uint32) {
		for _, n := range counts {
			*to += float64(n)
		}
	}
	for i := range limits {
		sum(&admitted, limits[i].Admitted)
		sum(&refused, limits[i].Refused)
		sum(&failed, limits[i].Failed)
	}
	s := float64(seconds)
	return fmt.Sprintf("a second: %.1f admitted, %.1f refused, %.1f failed", admitted/s, refused/s, failed/s)
}

// rowOf is a key of which a server tells.
func rowOf(k *api.KeyTraffic) topRow {
	u := &keyUse{Status: api.Status{Limit: k.Limit, Key: k.Key, Used: k.Used}}
	if k.Now != nil {
		u = useOf(&k.Now.Status)
		u.RetryAfterMS, u.never = k.Now.RetryAfterMS, k.Now.RetryAfterMS == nil
		u.Refused = u.never || *u.RetryAfterMS > 0
	}
	return topRow{keyUse: u, refused: fmt.Sprintf("%.0f", figure(k.Refused)), curve: curve(k.Recent)}
}

func figure(n json.Number) float64 {
	f, _ := n.Float64() // of a server, which writes numbers
	return f
}

// bars are the heights of a curve, and curveWidth how many parts of ten seconds it shows.
const (
	bars       = "▁▂▃▄▅▆▇█"
	curveWidth = 12
)

// curve draws the last parts of a series, as high as they are beside the largest of them.
func curve(series []json.Number) string {
	series = series[max(0, len(series)-curveWidth):]
	most := 0.0
	for _, n := range series {
		most = max(most, figure(n))
	}
	heights := []rune(bars)
	var b strings.Builder
	for _, n := range series {
		part := figure(n)
		if part == 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(heights[int(part/cmp.Or(most, 1)*float64(len(heights)-1)+0.5)])
	}
	return b.String()
}
