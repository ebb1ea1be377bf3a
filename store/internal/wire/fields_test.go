package wire

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

func TestFieldNamesAreUniqueAndComplete(t *testing.T) {
	for i, name := range fieldNames {
		if slices.Index(fieldNames, name) != i {
			t.Errorf("field %d is named %q", i, name)
		}
	}
	if n := len(values(&law.Op{Params: law.Params{Kind: law.Log}})); n != len(fieldNames) {
		t.Errorf("%d values have %d names", n, len(fieldNames))
	}
}
