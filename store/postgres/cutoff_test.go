package postgres_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store/storetest"
)

// TestLostAnswersAreRetriedByID loses answers between store and server: a retry with the same ID must not charge again.
func TestLostAnswersAreRetriedByID(t *testing.T) {
	dsn := migrated.Postgres(t)
	userPart, hostPart, _ := strings.Cut(dsn, "@")
	host, path, _ := strings.Cut(hostPart, "/")
	proxy := dbtest.StartProxy(t, host)
	direct := openAt(t, dsn)
	storetest.CutOff(t, direct, openAt(t, userPart+"@"+proxy.Addr+"/"+path), proxy.Lose)
}
