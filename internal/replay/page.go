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
	Policy string
	Style  template.CSS
	Script template.JS
	Title  string
	Log    *Report // report of the first limit, for the figures that are the same for all limits
	Limits []section
	Keys   []KeyRow // compares several limits
	Yes    string
	No     string
}

// section is the part of the page about one limit.
type section struct {
	*Report
	Yes, No string
	Traffic []chart
	Views   []pageView
}

// Bar returns the percentage of the requests that are refused.
func (s section) Bar() float64 { return round(100 * float64(s.Denied) / float64(s.Requests)) }

// pageView has the pictures of one key.
type pageView struct {
	Name     string
	About    string
	Requests string
	Column   string
	Whole    []chart
	From, To string
	Closer   []chart
	Blocks   bool
	Settles  bool
}

// pageFuncs are the functions with which the template writes figures and names.
var pageFuncs = template.FuncMap{
	"comma": comma, "plural": plural, "percent": percent, "finely": fineShare, "shown": displayKey,
	"span": func(s Seconds) string { return span(s.Duration) },
	"time": func(r *Report) string {
		return fmt.Sprintf("%s to %s, %s", stamp(r.First), stamp(r.Last), span(r.Last.Sub(r.First)))
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
	p.Yes, p.No = resultWords(r.Fill)
	for _, r := range reports {
		s := section{Report: r, Yes: p.Yes, No: p.No}
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
		p.Keys = KeysOfAll(reports, len(r.Top))
	}
	return p
}

func (p *picture) view() pageView {
	_, no := resultWords(p.fill)
	v := pageView{
		Name: displayKey(p.key.Key, 120), Column: span(time.Duration(p.width) * time.Microsecond),
		About: fmt.Sprintf("%s, %s %s", plural(p.key.Requests, "request"), comma(p.key.Denied), no),
	}
	for _, f := range frames {
		v.Whole = append(v.Whole, p.wholeChart(f))
		if len(p.closer) > 0 {
			v.Closer = append(v.Closer, p.closerChart(f))
		}
	}
	n := int64(0)
	for _, m := range p.closer {
		v.Blocks = v.Blocks || m.blocked > 0
		v.Settles = v.Settles || m.settles
		if m.end || m.settles {
			continue
		}
		if n++; n == 1 {
			v.From = precise(m.at)
		}
		v.To = precise(m.at)
	}
	v.Requests = plural(n, "request")
	return v
}

// sourceHash returns the source that allows one inline text in a content security policy.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
