package postgres_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestConformanceOnOtherVersions runs a shorter suite on every version of
// PostgreSQL that can be had here.
func TestConformanceOnOtherVersions(t *testing.T) {
	versions := dbtest.PostgresVersions()
	t.Logf("versions that can be had: %v", versions)
	for _, major := range versions {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			storetest.Run(t, func(tb testing.TB) store.Store { return openAt(tb, dbtest.PostgresVersion(tb, major)) },
				&storetest.Options{Histories: 200})
		})
	}
}
