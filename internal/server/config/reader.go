package config

import (
	"cmp"
	"errors"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
)

// Reader reads settings one by one from flags, variables and a file. Err is the first error; values that are read after
// an error are meaningless.
type Reader struct {
	config *Config
	flags  Flags
	Err    error
}

// Reader returns a reader of settings. Flags take precedence over variables, and variables over the file.
func (c *Config) Reader(flags Flags) *Reader { return &Reader{config: c, flags: flags} }

// fail sets Err, unless there is an error already.
func (r *Reader) fail(err error) { r.Err = cmp.Or(r.Err, err) }

// Value returns the value of a setting with its source.
func (r *Reader) Value(s Setting) SettingValue {
	said, err := r.config.Get(s, r.flags)
	r.fail(err)
	return said
}

// Text returns the text of a setting, or its default.
func (r *Reader) Text(s Setting) string { return r.Value(s).Value }

// read parses the value of a setting, or returns preset if it is not set. An error says that the value is not as
// expected; if that is empty, it has the error of parse.
func read[T any](r *Reader, s Setting, preset T, expected string, parse func(text string) (T, error)) T {
	said := r.Value(s)
	if said.By == "" || r.Err != nil {
		return preset
	}
	v, err := parse(said.Value)
	switch {
	case err == nil:
		return v
	case expected == "":
		r.fail(headgate.Invalid(said.source(s), "%v", err))
	default:
		r.fail(headgate.Invalid(said.source(s), "%.100q is not %s", said.Value, expected))
	}
	return preset
}

// checkRange adds an error to a parsed number that is out of a range.
func checkRange[N int | int64 | float64 | time.Duration](low, high N, n N, err error) (N, error) {
	if inside := n >= low && n <= high; err == nil && !inside { // NaN is not inside
		err = strconv.ErrRange
	}
	return n, err
}

// Bool returns a switch; false if it is not set.
func (r *Reader) Bool(s Setting) bool { return read(r, s, false, "true or false", strconv.ParseBool) }

// Duration returns a duration, or preset if it is not set.
func (r *Reader) Duration(s Setting, preset time.Duration) time.Duration {
	return read(r, s, preset, "a length of time such as 30s", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		return checkRange(0, math.MaxInt64, d, err)
	})
}

// Count returns a whole number above 0; 0 if it is not set.
func (r *Reader) Count(s Setting) int {
	return read(r, s, 0, "a number above 0", func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		return checkRange(1, math.MaxInt, n, err)
	})
}

// URL returns a URL of http or https; empty if it is not set. An error does not repeat it: it may have a secret.
func (r *Reader) URL(s Setting) string {
	return read(r, s, "", "", func(text string) (string, error) {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" {
			return "", errors.New("is not a URL such as https://example.com/hook")
		}
		return text, nil
	})
}

var sizeUnits = map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// Size returns a number of bytes above 0; 0 if it is not set.
func (r *Reader) Size(s Setting) int64 {
	return read(r, s, 0, "a size above 0, such as 64MiB", func(text string) (int64, error) {
		unit := int64(1)
		for name, bytes := range sizeUnits {
			if number, ok := strings.CutSuffix(text, name); ok {
				text, unit = strings.TrimSpace(number), bytes
			}
		}
		n, err := strconv.ParseInt(text, 10, 64)
		n, err = checkRange(1, math.MaxInt64/unit, n, err)
		return n * unit, err
	})
}

// share returns a number from 0 to 1; 0 if it is not set.
func (r *Reader) share(s Setting) float64 {
	return read(r, s, 0, "a number from 0 to 1, such as 0.01", func(text string) (float64, error) {
		n, err := strconv.ParseFloat(text, 64)
		return checkRange(0, 1, n, err)
	})
}

// Names returns the values of a list; nil if it is not set.
func (r *Reader) Names(s Setting) []string {
	return read(r, s, nil, "", func(text string) ([]string, error) {
		if names := splitList(text); !slices.Contains(names, "") {
			return names, nil
		}
		return nil, errors.New("one of the names is empty")
	})
}

// splitList splits a text at its commas.
func splitList(text string) []string {
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// Proxies returns the networks of Proxy: nil if it is not set, empty but not nil if it is none.
func (r *Reader) Proxies() httpkey.Proxies {
	return read(r, Proxy, nil, "", func(text string) (httpkey.Proxies, error) {
		if text == "none" {
			return httpkey.Proxies{}, nil
		}
		return httpkey.ParseProxies(splitList(text)...)
	})
}
