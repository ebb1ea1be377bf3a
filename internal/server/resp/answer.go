package resp

import "strconv"

// error answers with an error: one line.
func (c *conn) error(text string) {
	c.out = append(c.out, '-')
	for _, b := range []byte(text) {
		if b == '\r' || b == '\n' {
			b = ' '
		}
		c.out = append(c.out, b)
	}
	c.out = append(c.out, "\r\n"...)
}

// simpleString writes a constant text.
func (c *conn) simpleString(text string) {
	c.out = append(append(append(c.out, '+'), text...), "\r\n"...)
}

// number answers with a number.
func (c *conn) number(n int64) { c.head(':', n) }

// array begins an array of n answers.
func (c *conn) array(n int) { c.head('*', int64(n)) }

// pairs begins n pairs of a name and an answer: a map, or before version 3 an array.
func (c *conn) pairs(n int) {
	if c.resp3 {
		c.head('%', int64(n))
	} else {
		c.array(2 * n)
	}
}

// bulk answers with any text.
func (c *conn) bulk(text []byte) {
	c.head('$', int64(len(text)))
	c.out = append(append(c.out, text...), "\r\n"...)
}

func (c *conn) head(kind byte, n int64) {
	c.out = append(strconv.AppendInt(append(c.out, kind), n, 10), "\r\n"...)
}
