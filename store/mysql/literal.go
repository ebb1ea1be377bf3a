package mysql

import "strings"

// literal writes a string as a hexadecimal literal.
func literal(b *strings.Builder, s string) {
	const digits = "0123456789abcdef"
	b.WriteString("x'")
	for i := range len(s) {
		b.WriteByte(digits[s[i]>>4])
		b.WriteByte(digits[s[i]&15])
	}
	b.WriteByte('\'')
}

// quoted returns a string as a hexadecimal literal.
func quoted(s string) string {
	var b strings.Builder
	b.Grow(3 + 2*len(s))
	literal(&b, s)
	return b.String()
}

// quotedText returns a string as a literal of text. The server refuses one that is
// not valid.
func quotedText(s string) string { return "_" + charset + " " + quoted(s) }
