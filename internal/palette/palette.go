// Package palette has the colours that the pages of Headgate share: the page of the server and that of replay.
package palette

import _ "embed"

// CSS defines the colours as custom properties. They follow the system's choice of light or dark, unless a
// page sets color-scheme to one of them.
//
//go:embed palette.css
var CSS string
