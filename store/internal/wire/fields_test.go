package wire

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

func TestFieldNamesAreUniqueAndComplete(t *testing.T) {
	for i, name := range fieldNames {
		if slices.Index(fieldNames, name) != i {
			t.Errorf("field %d has the name %q of an earlier field", i, name)
		}
	}
	if n := len(values(&law.Op{Params: law.Params{Kind: law.Log}})); n != len(fieldNames) {
		t.Errorf("got %d names for %d values", len(fieldNames), n)
	}
}
