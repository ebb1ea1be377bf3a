package doctest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packages has the packages that a fragment may use without importing them, by their names.
var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "log": "log", "os": "os",
	"sql": "database/sql", "strings": "strings", "testing": "testing", "time": "time", "rand": "math/rand/v2",
	"pgx": "github.com/jackc/pgx/v5", "pgconn": "github.com/jackc/pgx/v5/pgconn",
	"pgxpool": "github.com/jackc/pgx/v5/pgxpool",
	"catalog": module + "/catalog", "client": module + "/client", "headgate": module, "law": module + "/law",
	"httplimit": module + "/httplimit", "llm": module + "/llm",
	"front": module + "/store/front", "memory": module + "/store/memory", "sqlite": module + "/store/sqlite",
	"mysql": module + "/store/mysql", "postgres": module + "/store/postgres", "redis": module + "/store/redis",
	"store": module + "/store", "storetest": module + "/store/storetest",
}

const module = "github.com/headgate/headgate"

// mainFile declares what fragments may use without declaring it.
const mainFile = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

var (
	ctx                 = context.Background()
	limiter             = headgate.New(memory.New(nil), nil)
	s       store.Store = memory.New(&memory.Config{Names: true})
)

var fragments = map[string]func() error{}

func main() {
	if err := fragments[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
`

// postgresURL is the variable that has the URL of a page's database, for fragments.
const postgresURL = "HEADGATE_DOC_POSTGRES"

// snippets are the Go blocks of all pages, as files of packages that exist only in an overlay.
type snippets struct {
	dir     string            // folder of the files
	overlay map[string]string // files by their paths in the project
	runs    map[string]string // commands that run the blocks, by the names of blocks
	tests   map[string]string // packages of test files, by the names of blocks
	options []string          // options of go build
}

// buildSnippets compiles all Go blocks, with options of go build. In the folder programs it makes the program
// "snippets", which runs a fragment by its name, and a program for each test in pagesToRun.
func buildSnippets(t *testing.T, pages, pagesToRun []page, programs string, options ...string) *snippets {
	t.Helper()
	s := &snippets{
		dir: t.TempDir(), overlay: map[string]string{}, runs: map[string]string{},
		tests: map[string]string{}, options: options,
	}
	s.add(t, "main.go", mainFile)
	for _, p := range pages {
		for i := range p.blocks {
			b := &p.blocks[i]
			if b.language != "go" || b.file() != "" { // commands of the page compile a file
				continue
			}
			name := fmt.Sprintf("%s:%d", p.name, b.line)
			if err := s.addBlock(t, name, b); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if len(s.overlay) < 2 {
		t.Fatal("the pages have no Go at all")
	}
	list, err := json.Marshal(map[string]any{"Replace": s.overlay})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(s.dir, "overlay.json"), string(list))
	s.goTool(t, "build", "-o", filepath.Join(programs, "snippets"), "./internal/testing/doctest/snippets")
	// All packages and tests are compiled, but not linked, which takes most of the time.
	s.goTool(t, "list", append([]string{"-export", "-test"}, s.packagePaths()...)...)
	for name, pkg := range s.tests {
		if !slices.ContainsFunc(pagesToRun, func(p page) bool { return strings.HasPrefix(name, p.name+":") }) {
			continue
		}
		s.runs[name] = filepath.Join(programs, filepath.Base(pkg))
		s.goTool(t, "test", "-vet=off", "-c", "-o", s.runs[name], pkg) // vet does not read overlays
	}
	return s
}

func (s *snippets) goTool(t *testing.T, verb string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go",
		slices.Concat([]string{verb}, s.options, []string{"-overlay", filepath.Join(s.dir, "overlay.json")}, args)...)
	cmd.Dir = root
	if slices.Contains(s.options, "-trimpath") {
		cmd.Env = releaseBuildEnv()
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", verb, err, out)
	}
}

func (s *snippets) packagePaths() (list []string) {
	for path := range s.overlay {
		rel, _ := strings.CutPrefix(filepath.Dir(path), absolute(root)+"/")
		if pkg := "./" + rel; !slices.Contains(list, pkg) {
			list = append(list, pkg)
		}
	}
	return list
}

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return abs
}

// add adds a file to a package below internal/testing/doctest/snippets.
func (s *snippets) add(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(s.dir, strings.ReplaceAll(name, "/", "-"))
	writeFile(t, file, text)
	s.overlay[filepath.Join(absolute(root), "internal/testing/doctest/snippets", name)] = file
}

// addBlock adds a file with a block: a whole file as it is, declarations with a package clause and imports, statements
// as a function.
func (s *snippets) addBlock(t *testing.T, name string, b *block) error {
	id := strings.NewReplacer("/", "_", ".", "_", ":", "_").Replace(name)
	lineDirective := fmt.Sprintf("//line %s:%d\n", strings.Replace(name, fmt.Sprintf(":%d", b.line), "", 1), b.line+1)
	if file, err := parser.ParseFile(token.NewFileSet(), "", b.text, parser.SkipObjectResolution); err == nil {
		pkg, goFile := "p"+id, "p"+id+"/a.go"
		if strings.HasSuffix(file.Name.Name, "_test") {
			goFile = pkg + "/a_test.go"
			s.tests[name] = "./internal/testing/doctest/snippets/" + pkg
			s.add(t, pkg+"/a.go", "package "+strings.TrimSuffix(file.Name.Name, "_test")+"\n")
		}
		s.add(t, goFile, lineDirective+b.text)
		return nil
	}
	if file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+b.text, 0); err == nil {
		s.add(t, "p"+id+"/a.go", "package p\n"+imports(file)+lineDirective+b.text)
		return nil
	}
	const head = "package main\nfunc _() error {\n"
	text := strings.ReplaceAll(b.text, `"postgres://localhost/app"`, `os.Getenv("`+postgresURL+`")`)
	file, err := parser.ParseFile(token.NewFileSet(), "", head+text+"\n}", 0)
	if err != nil {
		return err
	}
	names := variables(file)
	ending := "return nil"
	if slices.Contains(names, "err") {
		ending = "return err"
	}
	for _, v := range names {
		ending = "_ = " + v + "; " + ending
	}
	s.runs[name] = "snippets " + name
	s.add(t, id+".go", fmt.Sprintf("package main\n%sfunc init() { fragments[%q] = func() error {\n%s%s\n%s\n} }\n",
		imports(file), name, lineDirective, text, ending))
	return nil
}

// imports returns the import declarations that a file lacks.
func imports(file *ast.File) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, id := range file.Unresolved {
		if path := packages[id.Name]; path != "" && !seen[id.Name] {
			seen[id.Name] = true
			fmt.Fprintf(&b, "import %q\n", path)
		}
	}
	return b.String()
}

// variables returns the variables that a fragment declares. It need not use them.
func variables(file *ast.File) (names []string) {
	add := func(id *ast.Ident) {
		if id.Name != "_" && !slices.Contains(names, id.Name) {
			names = append(names, id.Name)
		}
	}
	body := file.Decls[len(file.Decls)-1].(*ast.FuncDecl).Body
	for _, stmt := range body.List {
		switch stmt := stmt.(type) {
		case *ast.AssignStmt:
			if stmt.Tok == token.DEFINE {
				for _, lhs := range stmt.Lhs {
					if id, ok := lhs.(*ast.Ident); ok {
						add(id)
					}
				}
			}
		case *ast.DeclStmt:
			if decl, ok := stmt.Decl.(*ast.GenDecl); ok && decl.Tok == token.VAR {
				for _, spec := range decl.Specs {
					for _, id := range spec.(*ast.ValueSpec).Names {
						add(id)
					}
				}
			}
		}
	}
	return names
}

// releaseBuildEnv returns the environment of make build, which a page runs too, so that packages are compiled once.
func releaseBuildEnv() []string { return append(os.Environ(), "CGO_ENABLED=0") }

// buildHeadgate makes the program in a folder.
func buildHeadgate(t *testing.T, programs string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(programs, "headgate"),
		"./cmd/headgate")
	cmd.Dir, cmd.Env = root, releaseBuildEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// link makes a symbolic link to path in a folder.
func link(t *testing.T, folder, name, path string) {
	t.Helper()
	if err := os.Symlink(path, filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
}
