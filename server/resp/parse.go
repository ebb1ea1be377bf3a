package resp

import (
	"bytes"
	"errors"
	"strconv"
)

// Bounds of a command. They hold before a caller is known, so they are small: a key has at most 512 bytes.
const (
	maxCommand = 16 << 10 // bytes of a command with all that frames it
	maxArgs    = 64       // words of a command
	maxNumber  = 20       // digits of a length
)

// What is wrong with a command that cannot be read. The connection is closed then, since it is not known
// where the next one begins.
var (
	errCount   = errors.New("invalid multibulk length")
	errBulk    = errors.New("invalid bulk length")
	errDollar  = errors.New("expected '$'")
	errTooLong = errors.New("too big a command")
)

// parse reads the command at the beginning of b: an array of bulk strings, or a line of words, as people
// type it. It returns the command and how many bytes it has; 0 bytes if it is not whole yet. A command without
// words is to be ignored. The words are parts of b.
func parse(b []byte) (words [][]byte, size int, err error) {
	if len(b) == 0 {
		return nil, 0, nil
	}
	if b[0] != '*' {
		return line(b)
	}
	count, size, err := number(b[1:], errCount)
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
		n, head, err := number(rest[1:], errBulk)
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

// tooLong is the error of a command that is not whole, if it never will be.
func tooLong(b []byte) error {
	if len(b) >= maxCommand {
		return errTooLong
	}
	return nil
}

// line reads words that are separated by spaces, up to the end of the line.
func line(b []byte) (words [][]byte, size int, err error) {
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

// number reads a whole number up to the end of its line, and returns how many bytes both have; 0 bytes if the
// end is not there yet.
func number(b []byte, wrong error) (n, size int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxNumber+2)], '\n')
	if end < 0 {
		if len(b) > maxNumber+1 {
			return 0, 0, wrong
		}
		return 0, 0, nil
	}
	if end == 0 || b[end-1] != '\r' {
		return 0, 0, wrong
	}
	n, err = strconv.Atoi(string(b[:end-1]))
	if err != nil {
		return 0, 0, wrong
	}
	return n, end + 1, nil
}
