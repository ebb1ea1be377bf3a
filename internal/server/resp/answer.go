package resp

import "strconv"

// error appends an error to the replies, as one line.
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

// simpleString appends a constant text without line breaks to the replies.
func (c *conn) simpleString(text string) {
	c.out = append(append(append(c.out, '+'), text...), "\r\n"...)
}

func (c *conn) number(n int64) { c.writeHeader(':', n) }

// array begins an array of n values.
func (c *conn) array(n int) { c.writeHeader('*', int64(n)) }

// bulk writes any text.
func (c *conn) bulk(text []byte) {
	c.writeHeader('$', int64(len(text)))
	c.out = append(append(c.out, text...), "\r\n"...)
}

func (c *conn) writeHeader(kind byte, n int64) {
	c.out = append(strconv.AppendInt(append(c.out, kind), n, 10), "\r\n"...)
}
