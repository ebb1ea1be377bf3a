package strict_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/strict"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// read reads a file that may have a, and a list of mappings with b and d. It returns their values in order.
func read(text string) (values []string, err error) {
	v, err := strict.Read("f.yaml", []byte(text))
	if err != nil || v.Node == nil {
		return nil, err
	}
	add := func(v strict.Value) error {
		values = append(values, v.Value)
		return nil
	}
	err = v.Fields(strict.Keys{
		"a": add,
		"list": func(v strict.Value) error {
			return v.Each(func(v strict.Value) error { return v.Fields(strict.Keys{"b": add, "d": add}) })
		},
	})
	return values, err
}

func TestUnknownAndRepeatedKeysAreErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: 1\nb: 2\n":               "f.yaml:2:1: b: the key is not known here; known are a, list",
		"a: 1\na: 2\n":               "f.yaml:2:1: a: is said twice",
		"[1]":                        "f.yaml:1:1: must be a mapping",
		"a: 1\n---\na: 2\n":          "begins a second document",
		"a: [":                       "f.yaml:1:1: ",
		"list: 5\n":                  "f.yaml:1:7: list: must be a list",
		"list: [{b: 1}, {c: 1}]":     "f.yaml:1:17: list[1].c: the key is not known here; known are b, d",
		"? [1]\n: 2\n":               "the key is not known here",
		"postgres://u:secret@h/d: 1": "f.yaml:1:1: postgres://h/d: the key is not known here",
	} {
		_, err := read(text)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want an ErrInvalid with %q", text, err, want)
		}
	}
	for _, text := range []string{"", "# nothing\n", "list: null\n"} {
		if values, err := read(text); values != nil || err != nil {
			t.Errorf("%q: got %v, %v, want no values", text, values, err)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	values, err := read("list: [&one {b: 1, d: 2}, {<<: *one, b: 3}, *one, {<<: [{b: 4}, *one]}]")
	if want := strings.Fields("1 2 3 2 1 2 4 2"); err != nil || !slices.Equal(values, want) {
		t.Errorf("got %q, %v, want %q", values, err, want)
	}
}

// TestAliasesOfAliases checks that a short file with 10^9 values, by aliases of aliases, is an error.
func TestAliasesOfAliases(t *testing.T) {
	t.Parallel()
	text := "a0: &a0 x\n"
	for i := range 9 {
		aliases := strings.Repeat(fmt.Sprintf("*a%d, ", i), 10)
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(aliases, ", "))
	}
	v, err := strict.Read("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var visit func(v strict.Value) error
	visit = func(v strict.Value) error {
		if v.Kind != yaml.SequenceNode {
			return nil
		}
		return v.Each(visit)
	}
	err = v.Members(func(_, v strict.Value) error { return visit(v) })
	if err == nil || !strings.Contains(err.Error(), "more than 500000 values") {
		t.Errorf("got %v, want that there are too many values", err)
	}
}
