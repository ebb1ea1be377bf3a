package postgres_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store/storetest"
)

// everyVersion runs a test on every version of PostgreSQL that can be had here.
func everyVersion(t *testing.T, test func(t *testing.T, dsn string)) {
	versions := dbtest.PostgresVersions()
	t.Logf("versions that can be had: %v", versions)
	for _, major := range versions {
		t.Run(fmt.Sprint(major), func(t *testing.T) { test(t, dbtest.PostgresVersion(t, major)) })
	}
}

// TestConformanceOnOtherVersions runs a shorter suite on every version of
// PostgreSQL that can be had here.
func TestConformanceOnOtherVersions(t *testing.T) {
	everyVersion(t, func(t *testing.T, dsn string) {
		conformance(t, storetest.Options{Histories: 200}, func(tb testing.TB) string { return dbtest.PostgresAt(tb, dsn) }, "")
	})
}
