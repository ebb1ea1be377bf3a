// Package sample has mutants of every kind.
package sample

import (
	"errors"
	"time"
)

type limit struct{ strict bool }

const step = 3

func within(n, from int) bool { return n >= from && n < from+10 }

func sum(list []int) (sum int) {
	for _, n := range list {
		if n == 0 {
			continue
		}
		sum += n
	}
	return sum
}

func (l *limit) next(n int) time.Duration {
	defer func() { n++ }()
	switch d := 2 * time.Second; {
	case !l.strict:
		return d
	case l.strict && len([...]int{1: n}) == 2:
		n = n % step
	}
	return time.Duration(n)
}

func nobody() bool { return true }

func parse(s string) (n int, err error) {
	if s != "one" {
		return 0, errors.New("unknown")
	}
	return 1, nil
}
