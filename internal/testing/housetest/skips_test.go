package housetest_test

import (
	"go/ast"
	"slices"
	"testing"
)

// maySkip lists the functions of test files, storetest and dbtest that skip tests, and says what runs these tests.
var maySkip = map[string]string{
	"cmd/headgate.peakMemory":                                  "systems that have /proc",
	"deploy.TestTheComposeFileIsValid":                         "make compose",
	"deploy.TestTheImage":                                      "make image, as root",
	"deploy.proxies":                                           "make traefik",
	"deploy/helm.helm":                                         "make chart",
	"internal/testing/dbtest.Namespace":                        "make engines, as root or with user namespaces",
	"internal/testing/dbtest.NeedEngine":                       "make engines, one engine after the other",
	"internal/testing/dbtest.NewNetwork":                       "make chaos, as root",
	"law.FuzzDecide":                                           "a fuzz target leaves out inputs that are no batch",
	"store/mysql.TestSnapshotIsolationIsRefusedInATransaction": "make engines, on servers that have the setting",
	"store/mysql.TestSQLModesThatChangeTheTextAreRefused":      "make engines, on servers that have the modes",
	"store/mysql.expectModeRefused":                            "make engines, on servers that have the mode",
	"store/postgres.needPgDump":                                "make test, on servers that pg_dump can dump",
	"store/postgres.TestConformanceOfYugabyteDB":               "HEADGATE_TEST_YUGABYTE_DSN, which names a server",
}

// TestNothingIsSkippedInSilence checks that maySkip lists all such functions, and no other function.
func TestNothingIsSkippedInSilence(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for dir, src := range testFiles(t, "../../..", "store/storetest", "internal/testing/dbtest") {
		for _, f := range src.files {
			for _, decl := range f.Decls {
				name := dir + "." + declName(decl)
				ast.Inspect(decl, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					sel, ok := call.Fun.(*ast.SelectorExpr)
					if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
						return true
					}
					seen[name] = true
					if maySkip[name] == "" {
						t.Errorf("%s: %s skips tests: what runs them?", src.set.Position(call.Pos()), name)
					}
					return true
				})
			}
		}
	}
	for name := range maySkip {
		if !seen[name] {
			t.Errorf("maySkip lists %s, which skips nothing", name)
		}
	}
}

// declName returns the name of a function, or the first name of another declaration.
func declName(decl ast.Decl) string {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		return decl.Name.Name
	case *ast.GenDecl:
		if len(decl.Specs) > 0 {
			if v, ok := decl.Specs[0].(*ast.ValueSpec); ok {
				return v.Names[0].Name
			}
		}
	}
	return ""
}
