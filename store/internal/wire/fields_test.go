package wire

import (
	"slices"
	"testing"
)

func TestEveryFieldHasANameOfItsOwn(t *testing.T) {
	names := fieldNames[:]
	for i, name := range names {
		if name == "" || slices.Index(names, name) != i {
			t.Errorf("field %d is named %q", i, name)
		}
	}
}
