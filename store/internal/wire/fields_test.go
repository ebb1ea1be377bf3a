package wire

import (
	"slices"
	"testing"
)

func TestEveryFieldHasANameOfItsOwn(t *testing.T) {
	for i, f := range fields {
		if f.name == "" || slices.IndexFunc(fields, func(other field) bool { return other.name == f.name }) != i {
			t.Errorf("field %d is named %q", i, f.name)
		}
	}
}
