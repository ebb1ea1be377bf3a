package headgatepb_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTheGeneratedCodeIsCurrent(t *testing.T) {
	t.Parallel()
	proto, err := os.ReadFile("../proto/headgate/v1/headgate.proto")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("headgate.proto.sha256")
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(proto)
	if got, _, _ := strings.Cut(string(sum), " "); got != hex.EncodeToString(digest[:]) {
		t.Error("headgate.proto was changed since its code was generated: run make proto")
	}
}
