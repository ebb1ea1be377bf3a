package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// pictureShapes are the shapes that the picture shows for each store, as far as the store has them.
var pictureShapes = []shape{{1, 1}, {1, 8}, {1, 512}, {8, 4}, {16, 2}}

const minRatio, maxRatio = 0.5, 8.0 // the ends of the scale

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

// drawPicture draws the rate of Headgate as a multiple of the reference's rate, with token buckets on 100,000 keys. The
// scale is logarithmic: 0.5 is as far from 1 as 2.
func drawPicture(results []result) []byte {
	const left, width, panel, height = 170, 860, 168, 28
	at := func(column int, ratio float64) float64 {
		ratio = min(max(ratio, minRatio), maxRatio)
		return float64(left+column*(panel+4)) + math.Log(ratio/minRatio)/math.Log(maxRatio/minRatio)*(panel-44)
	}
	bottom := 40 + height*len(pictureShapes)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`aria-label="Rate of token buckets on 100,000 keys, as a multiple of the rival's">`+"\n"+pictureStyle, width,
		bottom+26)
	for c, store := range (&bench{}).stores() {
		fmt.Fprintf(&b, "<text class=\"title\" x=\"%.0f\" y=\"20\">%s</text>\n", at(c, minRatio), store.title)
		for ratio := minRatio; ratio <= maxRatio; ratio *= 2 {
			class := map[bool]string{true: "one", false: "grid"}[ratio == 1]
			fmt.Fprintf(&b, `<line class="%s" x1="%[2]v" x2="%[2]v" y1="32" y2="%[3]d"/>`+"\n", class, at(c, ratio),
				bottom)
			fmt.Fprintf(&b, "<text class=\"middle\" x=\"%v\" y=\"%d\">%v</text>\n", at(c, ratio), bottom+18, ratio)
		}
		for i := range results {
			for row, s := range pictureShapes {
				headgate, reference := results[i].bestFigure(headgateSide), results[i].reference()
				if results[i].name == rowName(store.name, "plain", s) && headgate != nil && reference != nil {
					ratio := headgate.value / reference.value
					drawBar(&b, at(c, 1), at(c, ratio), 36+height*row, ratio)
				}
			}
		}
	}
	for row, s := range pictureShapes {
		fmt.Fprintf(&b, "<text class=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", left-10, 53+height*row,
			strings.Replace(s.String(), "processes x", "x", 1))
	}
	return append(b.Bytes(), "</svg>\n"...)
}

// drawBar draws the bar of a ratio, from the line of ratio 1 to its end.
func drawBar(b *bytes.Buffer, start, end float64, top int, ratio float64) {
	class := map[bool]string{true: "behind", false: "ahead"}[ratio < 1]
	fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="18"/>`+"\n", class, min(start, end), top+4,
		math.Abs(end-start))
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\">%.2f</text>\n", max(start, end)+4, top+18, ratio)
}
