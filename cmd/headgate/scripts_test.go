package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/testing/dbtest"
)

// TestScripts runs the scripts of testdata. One process runs all headgate commands of a script. exec headgate starts a
// process of its own, for commands whose variables, input or signals matter.
func TestScripts(t *testing.T) {
	s, err := dbtest.StartSharedPostgres(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Vars = slices.DeleteFunc(env.Vars, func(v string) bool { return strings.HasPrefix(v, "HEADGATE_") })
			name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
			script, err := os.ReadFile(filepath.Join("testdata", name+".txtar"))
			if err != nil {
				return err
			}
			for store, open := range map[string]func() string{
				"POSTGRES": func() (dsn string) {
					var drop func()
					dsn, drop, err = s.Database(context.Background())
					if err == nil {
						env.Defer(drop)
					}
					return dsn
				},
				"MYSQL": func() string { return dbtest.MariaDB(t) },
				"REDIS": func() string { return dbtest.Redis(t) },
			} {
				if bytes.Contains(script, []byte("$"+store)) {
					env.Setenv(store, open())
				}
			}
			c := newCommander(t)
			env.Defer(c.close)
			env.Values[commanderTask] = c
			env.Setenv("LONGKEY", strings.Repeat("k", 513))
			return err
		},
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){program: headgateCommand},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

const commanderTask = "commander"

// commander is a process that runs commands, one after another, each with its folder and its variables. A process for
// each command would take longer to start than most commands take.
type commander struct {
	process *dbtest.Child
	orders  *json.Encoder
	results *json.Decoder
}

// commandOrder is a command that the commander has to run.
type commandOrder struct {
	Dir  string
	Vars map[string]string
	Args []string
}

// commandResult is the result of a command.
type commandResult struct {
	Code           int
	Stdout, Stderr string
}

func newCommander(t *testing.T) *commander {
	t.Helper()
	c := dbtest.StartChild(t, commanderTask)
	return &commander{c, json.NewEncoder(c.In), json.NewDecoder(c.Out)}
}

func (c *commander) close() {
	c.process.In.Close()
	_ = c.process.Wait()
}

// headgateCommand runs headgate in a script, by its commander. With neg the command must fail.
func headgateCommand(ts *testscript.TestScript, neg bool, args []string) {
	c := ts.Value(commanderTask).(*commander)
	o := commandOrder{Dir: ts.MkAbs("."), Vars: map[string]string{}, Args: args}
	for _, name := range []string{"HOME", "HEADGATE_STORE", "HEADGATE_SERVER", "HEADGATE_CONFIG"} {
		if value := ts.Getenv(name); value != "" {
			o.Vars[name] = value
		}
	}
	// EMPTY names a variable to set to the empty text: Getenv cannot tell that from a variable that is not set.
	if name := ts.Getenv("EMPTY"); name != "" {
		o.Vars[name] = ""
	}
	ts.Check(c.orders.Encode(o))
	var r commandResult
	ts.Check(c.results.Decode(&r))
	_, err := ts.Stdout().Write([]byte(r.Stdout))
	ts.Check(err)
	_, err = ts.Stderr().Write([]byte(r.Stderr))
	ts.Check(err)
	if (r.Code != exitOK) != neg {
		ts.Fatalf("exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// runCommander is the main function of the commander's process.
func runCommander() {
	orders, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	devNull, err := os.Open(os.DevNull) // is no terminal
	must(err)
	for {
		var o commandOrder
		if orders.Decode(&o) != nil {
			return
		}
		must(os.Chdir(o.Dir))
		for name, value := range o.Vars {
			must(os.Setenv(name, value))
		}
		var stdout, stderr bytes.Buffer
		code := runMain(context.Background(), o.Args, devNull, &stdout, &stderr)
		for name := range o.Vars {
			must(os.Unsetenv(name))
		}
		must(results.Encode(commandResult{code, stdout.String(), stderr.String()}))
	}
}

// TestScriptPatternsDoNotMatchTimes checks the patterns that must not be in an output. A pattern of digits alone also
// matches some times of day: 10.1 is in 06:46:10.170.
func TestScriptPatternsDoNotMatchTimes(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	negated, onlyDigits := regexp.MustCompile(`(?m)^! (?:stdout|stderr) (.*)$`), regexp.MustCompile(`^[0-9][0-9.:\\]*$`)
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range negated.FindAllSubmatch(text, -1) {
			for alternative := range strings.SplitSeq(strings.Trim(string(line[1]), "'"), "|") {
				if onlyDigits.MatchString(alternative) {
					t.Errorf("%s: %s: %s may be a part of a time: add the text before it", script, line[0], alternative)
				}
			}
		}
	}
}
