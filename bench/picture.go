package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// picturedShapes are those that the picture shows, of each field.
var picturedShapes = []shape{{1, 1}, {1, 8}, {1, 512}, {8, 4}, {16, 2}}

const leastRatio, mostRatio = 0.5, 8.0 // the ends of its scale

const pictureStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #1d2a33 }
.end { text-anchor: end }
.middle { text-anchor: middle }
.title { font-weight: 600 }
.grid { stroke: #dfe3e4 }
.one { stroke: #1d2a33 }
.ahead { fill: #2a78b5 }
.behind { fill: #cb2f1f }
@media (prefers-color-scheme: dark) { text { fill: #e4e9ec } .grid { stroke: #2f3a41 } .one { stroke: #e4e9ec } }
</style>
`

// picture draws how many times the rate of what one would take instead Headgate has, with token buckets on 100,000
// keys. The scale is logarithmic: 0.5 is as far from 1 as 2.
func picture(results []result) []byte {
	const left, width, panel, height = 170, 860, 168, 28
	at := func(column int, ratio float64) float64 {
		ratio = min(max(ratio, leastRatio), mostRatio)
		return float64(left+column*(panel+4)) + math.Log(ratio/leastRatio)/math.Log(mostRatio/leastRatio)*(panel-44)
	}
	bottom := 40 + height*len(picturedShapes)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`aria-label="Rate of token buckets on 100,000 keys, as a multiple of the rival's">`+"\n"+pictureStyle, width,
		bottom+26)
	for c, store := range (&bench{}).fields() {
		fmt.Fprintf(&b, "<text class=\"title\" x=\"%.0f\" y=\"20\">%s</text>\n", at(c, leastRatio), store.title)
		for ratio := leastRatio; ratio <= mostRatio; ratio *= 2 {
			class := "grid"
			if ratio == 1 {
				class = "one"
			}
			fmt.Fprintf(&b, `<line class="%s" x1="%[2]v" x2="%[2]v" y1="32" y2="%[3]d"/>`+"\n", class, at(c, ratio),
				bottom)
			fmt.Fprintf(&b, "<text class=\"middle\" x=\"%v\" y=\"%d\">%v</text>\n", at(c, ratio), bottom+18, ratio)
		}
		for i := range results {
			for row, s := range picturedShapes {
				own, other := results[i].best(ours), results[i].against()
				if results[i].name == rowName(store.name, "plain", s) && own != nil && other != nil {
					bar(&b, at(c, 1), at(c, own.value/other.value), 36+height*row, own.value/other.value)
				}
			}
		}
	}
	for row, s := range picturedShapes {
		fmt.Fprintf(&b, "<text class=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", left-10, 53+height*row,
			strings.Replace(s.String(), "processes x", "x", 1))
	}
	return append(b.Bytes(), "</svg>\n"...)
}

func bar(b *bytes.Buffer, one, end float64, top int, ratio float64) {
	class := "ahead"
	if ratio < 1 {
		class = "behind"
	}
	fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="18"/>`+"\n", class, min(one, end), top+4,
		math.Abs(end-one))
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\">%.2f</text>\n", max(one, end)+4, top+18, ratio)
}
