package pictures

import (
	_ "embed"
	"regexp"
	"strings"

	"github.com/headgate/headgate/internal/palette"
)

//go:embed style.css
var styleText string

// style is that of all pictures, with the colours of package palette written out: not every program that draws SVG
// knows custom properties and light-dark().
var style = inColours(styleText, 1) + "@media (prefers-color-scheme: dark) {\n" + inColours(styleText, 2) + "}\n"

var colour = regexp.MustCompile(`--([a-z]+): light-dark\((#[0-9a-f]+), (#[0-9a-f]+)\)`)

// inColours replaces the names of colours: by those for light paper (1) or for dark (2).
func inColours(text string, which int) string {
	for _, m := range colour.FindAllStringSubmatch(palette.CSS, -1) {
		text = strings.ReplaceAll(text, "var(--"+m[1]+")", m[1+which])
	}
	return text
}
