package postgres_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store/storetest"
)

func TestAnswersThatGetLostAreAskedForAgainByTheirID(t *testing.T) {
	dsn := migrated.Postgres(t)
	before, rest, _ := strings.Cut(dsn, "@")
	host, path, _ := strings.Cut(rest, "/")
	p := dbtest.Swallow(t, host)
	direct := openAt(t, dsn)
	storetest.CutOff(t, direct, openAt(t, before+"@"+p.Addr+"/"+path), p.Lose)
}
