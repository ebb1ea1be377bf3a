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

// page is what the template shows.
type page struct {
	Policy  string
	Style   template.CSS
	Script  template.JS
	Title   string
	Field   string
	Logs    []string
	Time    string
	Limits  []*section
	About   []string // the log
	Bad     []string // lines that could not be read
	Compare []row    // of several limits
	Keys    []KeyRow
	Yes, No string
}

// row is a limit in a table of several.
type row struct {
	Limit, Allowed, Denied, Share, Keys, KeyShare string
	Bar                                           float64 // of 100
}

// section is one limit on the page.
type section struct {
	Notation, Bound, Field string
	Yes, No                string
	Fill                   bool
	Requests, Keys         string
	Allowed, AllowedShare  string
	Denied, DeniedShare    string
	RefusedKeys, AllKeys   string
	Unparsed, Lines, Brim  string
	Cost                   string
	Width                  string
	Traffic                []chart
	Views                  []pageView
	Top                    []pageKey
	More                   string
}

type pageKey struct{ Name, Requests, Denied, Share, Date, Clock string }

// pageView is the pictures of one key.
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

// WriteHTML writes the report as one page that needs nothing else: no
// network, no other file. Levels are drawn if Config.Pictures was set.
func (r *Report) WriteHTML(w io.Writer) error { return WriteAllHTML(w, []*Report{r}) }

// WriteAllHTML writes reports as one page, which compares them if there are several.
func WriteAllHTML(w io.Writer, reports []*Report) error {
	t, err := template.New("page").Parse(pageText)
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
		// Nothing but this style and this script, whatever a log contains.
		Policy: "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " +
			sourceHash(palette.CSS+pageStyle) + "; script-src " + sourceHash(pageScript),
		Style:  template.CSS(palette.CSS + pageStyle),
		Script: template.JS(pageScript),
		Title:  r.Notation,
		Field:  r.Field,
		Time:   fmt.Sprintf("%s to %s, %s", stamp(r.First), stamp(r.Last), span(r.Last.Sub(r.First))),
	}
	p.Yes, p.No = r.words()
	for _, l := range r.Logs {
		p.Logs = append(p.Logs, fmt.Sprintf("%s (%s)", printable(l.Name), l.Format))
	}
	p.aboutLog(r)
	for _, r := range reports {
		p.Limits = append(p.Limits, r.section())
	}
	if len(reports) > 1 {
		p.Title = fmt.Sprintf("%d limits compared", len(reports))
		for _, r := range reports {
			p.Compare = append(p.Compare, row{
				r.Notation, comma(r.Allowed), comma(r.Denied), finely(r.Denied, r.Requests), comma(int64(r.Refused)),
				finely(int64(r.Refused), int64(r.Keys)), round(100 * float64(r.Denied) / float64(r.Requests)),
			})
		}
		p.Keys = KeysOfAll(reports, len(r.Top))
		for i := range p.Keys {
			p.Keys[i].Key = shorten(printable(p.Keys[i].Key), 120)
		}
	}
	return p
}

// aboutLog tells what became of the lines of the logs.
func (p *page) aboutLog(r *Report) {
	p.About = append(p.About, fmt.Sprintf("%s read, %s not read, %s skipped", plural(r.Lines, "line"),
		comma(r.Unparsed), comma(r.Skipped)))
	if r.Filtered > 0 {
		p.About = append(p.About, plural(r.Filtered, "line")+" left out by where, since or until")
	}
	if r.Disorder.Requests > 0 {
		p.About = append(p.About, fmt.Sprintf("%s were out of order, by up to %s; they were sorted",
			plural(r.Disorder.Requests, "request"), span(r.Disorder.Greatest)))
	}
	p.About = append(p.About, r.Notes...)
	for _, w := range r.Reasons {
		if w.Unparsed {
			p.Bad = append(p.Bad, plural(w.Lines, "line")+", first "+w.First.String())
		}
	}
}

func (r *Report) section() *section {
	s := &section{
		Notation: r.Notation, Bound: r.Bound, Field: r.Field, Fill: r.Fill,
		Requests:     comma(r.Requests),
		Keys:         plural(int64(r.Keys), "key"),
		Allowed:      comma(r.Allowed),
		AllowedShare: percent(r.Allowed, r.Requests),
		Denied:       comma(r.Denied),
		DeniedShare:  finely(r.Denied, r.Requests),
		RefusedKeys:  comma(int64(r.Refused)),
		AllKeys:      fmt.Sprintf("of %s, %s", plural(int64(r.Keys), "key"), finely(int64(r.Refused), int64(r.Keys))),
		Lines:        comma(r.Lines),
		Brim:         comma(r.Brim),
		Width:        span(r.Width),
	}
	s.Yes, s.No = r.words()
	if r.Unparsed > 0 {
		s.Unparsed = comma(r.Unparsed)
	}
	if r.Asked != (Total{units: r.Requests}) {
		s.Cost = fmt.Sprintf("cost %s of %s", r.Accepted, r.Asked)
	}
	for _, k := range r.Top {
		s.Top = append(s.Top, pageKey{
			shorten(printable(k.Key), 120), comma(k.Requests), comma(k.Denied),
			percent(k.Denied, k.Requests), k.FirstDenied.Format(time.DateOnly), k.FirstDenied.Format(time.TimeOnly),
		})
	}
	if more := r.Refused - len(r.Top); more > 0 && len(r.Top) > 0 {
		s.More = plural(int64(more), "key") + " with fewer"
	}
	for _, f := range frames {
		s.Traffic = append(s.Traffic, r.traffic(f))
	}
	for i := range r.pictures {
		s.Views = append(s.Views, r.pictures[i].view())
	}
	return s
}

func (p *picture) view() pageView {
	v := pageView{
		Name:   shorten(printable(p.key.Key), 120),
		About:  fmt.Sprintf("%s, %s %s", plural(p.key.Requests, "request"), comma(p.key.Denied), p.word()),
		Column: span(time.Duration(p.width) * time.Microsecond),
	}
	for _, f := range frames {
		v.Whole = append(v.Whole, p.whole(f))
		if len(p.closer) > 0 {
			v.Closer = append(v.Closer, p.close(f))
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

// sourceHash allows one text in a content security policy.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
