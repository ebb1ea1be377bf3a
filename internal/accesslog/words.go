package accesslog

import "strconv"

// Comma writes a number such as 12,345.
func Comma(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural writes "1 line" and "12,345 lines".
func Plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Comma(n) + " " + what + "s"
}

// Quote writes text of a log in quotes, without characters that control a terminal.
func Quote(s string) string { return strconv.QuoteToGraphic(s) }
