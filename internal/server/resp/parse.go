package resp

import (
	"bytes"
	"errors"
	"strconv"
)

// Bounds of a command. They are small because they apply before the caller is known. A key has at most 512 bytes.
const (
	maxCommand = 16 << 10 // bytes of a command, with its framing
	maxArgs    = 64       // words of a command
	maxNumber  = 20       // digits of a length, with its sign
)

// Errors of parse. The connection is closed after them, because the beginning of the next command is unknown.
var (
	errCount   = errors.New("invalid multibulk length")
	errBulk    = errors.New("invalid bulk length")
	errDollar  = errors.New("expected '$'")
	errTooLong = errors.New("too big a command")
)

// parse parses the command at the beginning of b: an array of bulk strings, or an inline command. It returns the words
// of the command, as slices of b, and its size in bytes; 0: it is incomplete. One without words is to be ignored.
func parse(b []byte) (words [][]byte, size int, err error) {
	if len(b) == 0 {
		return nil, 0, nil
	}
	if b[0] != '*' {
		return parseInline(b)
	}
	count, size, err := parseInteger(b[1:], errCount)
	if err != nil || size == 0 {
		return nil, 0, err
	}
	if count > maxArgs {
		return nil, 0, errTooLong
	}
	size++
	for range count {
		rest := b[size:]
		if len(rest) == 0 {
			return nil, 0, tooLong(b)
		}
		if rest[0] != '$' {
			return nil, 0, errDollar
		}
		n, head, err := parseInteger(rest[1:], errBulk)
		switch {
		case err != nil:
			return nil, 0, err
		case n < 0:
			return nil, 0, errBulk
		case n > maxCommand:
			return nil, 0, errTooLong
		case head == 0 || len(rest) < 1+head+n+2:
			return nil, 0, tooLong(b)
		}
		word := rest[1+head:]
		if word[n] != '\r' || word[n+1] != '\n' {
			return nil, 0, errBulk
		}
		words = append(words, word[:n:n])
		size += 1 + head + n + 2
	}
	return words, size, nil
}

// tooLong returns errTooLong if an incomplete command has reached the maximum size.
func tooLong(b []byte) error {
	if len(b) >= maxCommand {
		return errTooLong
	}
	return nil
}

// parseInline parses an inline command: words that are separated by spaces, up to the end of the line.
func parseInline(b []byte) (words [][]byte, size int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return nil, 0, tooLong(b)
	}
	words = bytes.Fields(b[:end])
	if len(words) > maxArgs {
		return nil, 0, errTooLong
	}
	return words, end + 1, nil
}

// parseInteger parses a line with an integer, and returns the size of the line in bytes; 0 if it is incomplete.
func parseInteger(b []byte, invalid error) (n, size int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxNumber+2)], '\n')
	if end < 0 {
		if len(b) > maxNumber+1 {
			return 0, 0, invalid
		}
		return 0, 0, nil
	}
	if end == 0 || b[end-1] != '\r' {
		return 0, 0, invalid
	}
	n, err = strconv.Atoi(string(b[:end-1]))
	if err != nil {
		return 0, 0, invalid
	}
	return n, end + 1, nil
}
