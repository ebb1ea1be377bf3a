package replay

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/headgate/headgate/internal/palette"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// page is the data of the template.
type page struct {
	Policy                    string
	Style                     template.CSS
	Script                    template.JS
	Title                     string
	Log                       *Report // report of the first limit, for the figures that are the same for all limits
	Limits                    []section
	Keys                      []KeyRow // compares several limits
	AdmittedWord, RefusedWord string   // from resultWords
}

// section is the part of the page about one limit.
type section struct {
	*Report
	AdmittedWord, RefusedWord string
	Traffic                   []chart
	Views                     []pageView
}

// RefusedPercent returns the percentage of the requests that are refused.
func (s section) RefusedPercent() float64 {
	return round(100 * float64(s.Denied) / float64(s.Requests))
}

// pageView has the pictures of one key.
type pageView struct {
	Name                      string // the key
	About                     string // how many requests it has, and how many are refused
	WholeLog                  []chart
	ColumnWidth               string
	CloseUp                   []chart
	Requests                  string // how many requests CloseUp shows
	From, To                  string // times of the first and the last of them
	HasBlocks, HasSettlements bool
}

// pageFuncs are the functions with which the template writes figures and names.
var pageFuncs = template.FuncMap{
	"comma": comma, "plural": plural, "percent": formatPercent, "finePercent": formatFinePercent, "shown": displayKey,
	"span": func(s Seconds) string { return formatDuration(s.Duration) },
	"time": func(r *Report) string {
		return fmt.Sprintf("%s to %s, %s", formatTime(r.First), formatTime(r.Last), formatDuration(r.Last.Sub(r.First)))
	},
}

// WriteAllHTML writes reports as one page, which compares them if there are several. The page needs no network and no
// other file. Levels are drawn if Config.Pictures was set.
func WriteAllHTML(w io.Writer, reports []*Report) error {
	t, err := template.New("page").Funcs(pageFuncs).Parse(pageText)
	if err == nil {
		err = t.Execute(w, newPage(reports))
	}
	if err != nil {
		return fmt.Errorf("replay: page: %w", err)
	}
	return nil
}

func newPage(reports []*Report) *page {
	r := reports[0]
	p := &page{
		// Only this style and this script are allowed, whatever a log contains.
		Policy: "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " +
			sourceHash(palette.CSS+pageStyle) + "; script-src " + sourceHash(pageScript),
		Style: template.CSS(palette.CSS + pageStyle), Script: template.JS(pageScript), Title: r.Notation, Log: r,
	}
	p.AdmittedWord, p.RefusedWord = resultWords(r.Fill)
	for _, r := range reports {
		s := section{Report: r, AdmittedWord: p.AdmittedWord, RefusedWord: p.RefusedWord}
		for _, f := range frames {
			s.Traffic = append(s.Traffic, r.trafficChart(f))
		}
		for i := range r.pictures {
			s.Views = append(s.Views, r.pictures[i].view())
		}
		p.Limits = append(p.Limits, s)
	}
	if len(reports) > 1 {
		p.Title = fmt.Sprintf("%d limits compared", len(reports))
		p.Keys = TopKeyRows(reports, len(r.Top))
	}
	return p
}

func (p *picture) view() pageView {
	_, refused := resultWords(p.fill)
	v := pageView{
		Name:        displayKey(p.key.Key, 120),
		About:       fmt.Sprintf("%s, %s %s", plural(p.key.Requests, "request"), comma(p.key.Denied), refused),
		ColumnWidth: formatDuration(time.Duration(p.width) * time.Microsecond),
	}
	for _, f := range frames {
		v.WholeLog = append(v.WholeLog, p.wholeChart(f))
		if len(p.closeUp) > 0 {
			v.CloseUp = append(v.CloseUp, p.closeUpChart(f))
		}
	}
	n := int64(0)
	for _, m := range p.closeUp {
		v.HasBlocks = v.HasBlocks || m.blockedUntil > 0
		v.HasSettlements = v.HasSettlements || m.isSettlement
		if m.isEnd || m.isSettlement {
			continue
		}
		if n++; n == 1 {
			v.From = formatPreciseTime(m.at)
		}
		v.To = formatPreciseTime(m.at)
	}
	v.Requests = plural(n, "request")
	return v
}

// sourceHash returns the source that allows one inline text in a content security policy.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
