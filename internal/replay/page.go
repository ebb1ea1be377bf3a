package replay

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"time"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// page is what the template shows.
type page struct {
	Policy        string
	Style         template.CSS
	Script        template.JS
	Report        *Report
	Logs          []string
	Time          string
	Width         string
	Requests      string
	Keys          string
	Allowed       string
	AllowedShare  string
	Denied        string
	DeniedShare   string
	RefusedKeys   string
	Unparsed      string
	Lines         string
	Skipped       string
	FirstUnparsed string
	Disorder      string
	More          string
	Top           []pageKey
	Views         []pageView
	Traffic       chart
}

type pageKey struct{ Name, Requests, Denied, Share, First string }

// pageView is the pictures of one key.
type pageView struct {
	Name     string
	About    string
	Requests string
	Column   string
	Whole    chart
	From, To string
	Closer   chart
}

// WriteAllHTML writes reports as one page.
func WriteAllHTML(w io.Writer, reports []*Report) error { return reports[0].WriteHTML(w) }

// WriteHTML writes the report as one page that needs nothing else: no
// network, no other file. Levels are drawn if Config.Pictures was set.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("replay: page: %w", err)
	}
	if err := t.Execute(w, r.page()); err != nil {
		return fmt.Errorf("replay: page: %w", err)
	}
	return nil
}

func (r *Report) page() *page {
	p := &page{
		// Nothing but this style and this script, whatever a log contains.
		Policy: "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + sourceHash(pageStyle) +
			"; script-src " + sourceHash(pageScript),
		Style:  template.CSS(pageStyle),
		Script: template.JS(pageScript),

		Report:       r,
		Requests:     comma(r.Requests),
		Keys:         plural(int64(r.Keys), "key"),
		Allowed:      comma(r.Allowed),
		AllowedShare: percent(r.Allowed, r.Requests),
		Denied:       comma(r.Denied),
		DeniedShare:  percent(r.Denied, r.Requests),
		RefusedKeys:  plural(int64(r.Refused), "key"),
		Unparsed:     comma(r.Unparsed),
		Lines:        comma(r.Lines),
		Skipped:      comma(r.Skipped),
	}
	for _, l := range r.Logs {
		p.Logs = append(p.Logs, fmt.Sprintf("%s (%s)", printable(l.Name), l.Format))
	}
	if r.FirstUnparsed != nil {
		p.FirstUnparsed = r.FirstUnparsed.String()
	}
	if r.Disorder.Requests > 0 {
		p.Disorder = fmt.Sprintf("%s were out of order, by up to %s; they were sorted",
			plural(r.Disorder.Requests, "request"), span(r.Disorder.Greatest))
	}
	for _, k := range r.Top {
		p.Top = append(p.Top, pageKey{
			shorten(printable(k.Key), 120), comma(k.Requests), comma(k.Denied),
			percent(k.Denied, k.Requests), stamp(k.FirstDenied),
		})
	}
	if more := r.Refused - len(r.Top); more > 0 && len(r.Top) > 0 {
		p.More = plural(int64(more), "key") + " with fewer refusals"
	}
	if r.Requests == 0 {
		return p
	}
	p.Time = fmt.Sprintf("%s to %s, %s", stamp(r.First), stamp(r.Last), span(r.Last.Sub(r.First)))
	p.Width = span(r.Width)
	p.Traffic = r.trafficChart()
	for i := range r.pictures {
		p.Views = append(p.Views, r.pictures[i].view())
	}
	return p
}

func (p *picture) view() pageView {
	v := pageView{
		Name:   shorten(printable(p.key.Key), 120),
		About:  fmt.Sprintf("%s, %s refused", plural(p.key.Requests, "request"), comma(p.key.Denied)),
		Column: span(time.Duration(p.width) * time.Microsecond),
		Whole:  p.wholeChart(),
		Closer: p.closerChart(),
	}
	if n := len(p.closer); n > 0 {
		last := p.closer[n-1]
		if last.end && n > 1 {
			last = p.closer[n-2]
			n--
		}
		v.Requests = plural(int64(n), "request")
		v.From, v.To = precise(p.closer[0].at), precise(last.at)
	}
	return v
}

// sourceHash allows one text in a content security policy.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
