package config

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
)

// Reader reads what flags, variables and a file say of one setting after the other. Err is the first error; values
// that are read after it mean nothing.
type Reader struct {
	config *Config
	flags  Flags
	Err    error
}

// Reader returns one that reads the settings of the file, unless flags or variables say otherwise.
func (c *Config) Reader(flags Flags) *Reader { return &Reader{config: c, flags: flags} }

func (r *Reader) fail(err error) { r.Err = cmp.Or(r.Err, err) }

// Said returns what is said of a setting.
func (r *Reader) Said(s Setting) Said {
	said, err := r.config.Get(s, r.flags)
	r.fail(err)
	return said
}

// Text returns the text that is said of a setting, or its default.
func (r *Reader) Text(s Setting) string { return r.Said(s).Value }

// read parses what is said of a setting, or returns preset where nothing is. A value that cannot be parsed is not
// what it has to be; if that is empty, the error of parse says what is wrong.
func read[T any](r *Reader, s Setting, preset T, hasToBe string, parse func(text string) (T, error)) T {
	said := r.Said(s)
	if said.By == "" || r.Err != nil {
		return preset
	}
	v, err := parse(said.Value)
	switch {
	case err == nil:
		return v
	case hasToBe == "":
		r.fail(headgate.Invalid(said.of(s), "%v", err))
	default:
		r.fail(headgate.Invalid(said.of(s), "%.100q is not %s", said.Value, hasToBe))
	}
	return preset
}

// in returns an error unless a number that was parsed lies in a range.
func in[N int | int64 | float64 | time.Duration](low, high N, n N, err error) (N, error) {
	if inside := n >= low && n <= high; err == nil && !inside { // which NaN is not
		err = strconv.ErrRange
	}
	return n, err
}

// Bool returns a switch; false where nothing is said.
func (r *Reader) Bool(s Setting) bool { return read(r, s, false, "true or false", strconv.ParseBool) }

// Duration returns a length of time, or preset where nothing is said.
func (r *Reader) Duration(s Setting, preset time.Duration) time.Duration {
	return read(r, s, preset, "a length of time such as 30s", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		return in(0, math.MaxInt64, d, err)
	})
}

// Count returns a whole number above 0; 0 where nothing is said.
func (r *Reader) Count(s Setting) int {
	return read(r, s, 0, "a number above 0", func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		return in(1, math.MaxInt, n, err)
	})
}

// sizes are the units of a Size.
var sizes = map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// Size returns a number of bytes above 0; 0 where nothing is said.
func (r *Reader) Size(s Setting) int64 {
	return read(r, s, 0, "a size above 0, such as 64MiB", func(text string) (int64, error) {
		unit := int64(1)
		for name, bytes := range sizes {
			if number, ok := strings.CutSuffix(text, name); ok {
				text, unit = strings.TrimSpace(number), bytes
			}
		}
		n, err := strconv.ParseInt(text, 10, 64)
		n, err = in(1, math.MaxInt64/unit, n, err)
		return n * unit, err
	})
}

// share returns a number from 0 to 1; 0 where nothing is said.
func (r *Reader) share(s Setting) float64 {
	return read(r, s, 0, "a number from 0 to 1, such as 0.01", func(text string) (float64, error) {
		n, err := strconv.ParseFloat(text, 64)
		return in(0, 1, n, err)
	})
}

// Names returns the values of a list; nil where nothing is said.
func (r *Reader) Names(s Setting) []string {
	return read(r, s, nil, "", func(text string) ([]string, error) {
		if names := list(text); !slices.Contains(names, "") {
			return names, nil
		}
		return nil, errors.New("one of the names is empty")
	})
}

// list returns what stands between commas.
func list(text string) []string {
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// Proxies returns the networks of Proxy: nil where nothing is said, and not nil but empty for none.
func (r *Reader) Proxies() httpkey.Proxies {
	return read(r, Proxy, nil, "", func(text string) (httpkey.Proxies, error) {
		if text == "none" {
			return httpkey.Proxies{}, nil
		}
		return httpkey.ParseProxies(list(text)...)
	})
}
