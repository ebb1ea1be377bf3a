package accesslog

import (
	"strconv"
	"strings"
)

// Comma returns a number with commas, such as 12,345.
func Comma(n int64) string { return GroupThousands(strconv.FormatInt(n, 10)) }

// GroupThousands sets commas between the thousands of a decimal.
func GroupThousands(s string) string {
	whole, _, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural returns a number with a noun, such as "1 line" or "12,345 lines".
func Plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Comma(n) + " " + noun + "s"
}

// Quote returns a text in quotes, without characters that control a terminal.
func Quote(s string) string { return strconv.QuoteToGraphic(s) }
