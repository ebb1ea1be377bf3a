package postgres_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store/storetest"
)

// TestRetryByIDAfterALostAnswerChargesNothing loses answers of the server to the store: see storetest.CutOff.
func TestRetryByIDAfterALostAnswerChargesNothing(t *testing.T) {
	dsn := migrated.Postgres(t)
	userPart, hostPart, _ := strings.Cut(dsn, "@")
	host, path, _ := strings.Cut(hostPart, "/")
	proxy := dbtest.StartProxy(t, host)
	direct := openAt(t, dsn)
	storetest.CutOff(t, direct, openAt(t, userPart+"@"+proxy.Addr+"/"+path), proxy.Lose)
}
