package postgres_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

const clientLimits = `insert into headgate.limits (name, rule) values ('wide', 'fixed-window 2000000000000000/30d'), ('narrow', 'fixed-window 50/30d'), ('middle', 'fixed-window 60/30d')`

// TestUntypedParametersLoseNoDigits prepares calls with parameters without types. Each function name is unique, so the
// server infers the types, and no digit is lost.
func TestUntypedParametersLoseNoDigits(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	mustExec(t, conn, clientLimits)
	const texts, text, numerics, numeric, float, interval = "1009", "25", "1231", "1700", "701", "1186" // OIDs of types
	rules, smallRules, keys := []string{"wide", "narrow"}, []string{"narrow", "middle"}, []string{"k", "k"}
	for _, tt := range []struct {
		call  string
		types []string
		args  []any
		want  string // the first row
	}{
		{"allowed || ' ' || remaining from headgate.take_all($1, $2, $3)", []string{texts, texts, numerics}, []any{rules, keys, []string{"1000000000000001", "1.5"}}, "true 999999999999999"},
		{"allowed || ' ' || remaining from headgate.take_all($1, $2, $3)", []string{texts, texts, numerics}, []any{rules, []string{"f", "f"}, []float64{1000000000000001, 1.5}}, "true 999999999999999"},
		{"allowed || ' ' || remaining from headgate.take_all($1, $2, $3)", []string{texts, texts, numerics}, []any{rules, []string{"i", "i"}, []int64{1000000000000001, 1}}, "true 999999999999999"},
		{"allowed || ' ' || replayed from headgate.take_all_once($1, $2, $3, $4, $5)", []string{text, texts, texts, numerics, interval}, []any{"i", smallRules, keys, []string{"1", "2.5"}, "1 hour"}, "true false"},
		{"charged::text from headgate.extend($1, $2, $3, $4, $5)", []string{text, text, text, numeric, interval}, []any{"i", "narrow", "k", "1.5", "1 hour"}, "1.5"},
		{"allowed || ' ' || charged from headgate.extend_all($1, $2, $3, $4, $5)", []string{text, texts, texts, numerics, interval}, []any{"i", smallRules, keys, []string{"2", "2.5"}, "1 hour"}, "true 2"},
		{"corrected::text from headgate.settle_all($1, $2, $3, $4)", []string{text, texts, texts, numerics}, []any{"i", smallRules, keys, []string{"0.5", "2.5"}}, "1.5"},
		{"allowed || ' ' || delay from headgate.reserve_all($1, $2, $3, $4, $5, $6)", []string{texts, texts, numerics, interval, text, interval}, []any{rules, keys, []string{"1", "1"}, "30 s", "r", "1 hour"}, "true 00:00:00"},
		{"accepted::text from headgate.take_up_to($1, $2, $3)", []string{text, text, numeric}, []any{"narrow", "u", "1000"}, "50"},
		{"remaining::text from headgate.take_float($1, $2, $3)", []string{text, text, float}, []any{"wide", "d", 1000000000000001.0}, "999999999999999"},
		{"remaining::text from headgate.enforce($1, $2, $3)", []string{text, text, numeric}, []any{"wide", "e", "1000000000000001"}, "999999999999999"},
	} {
		d, err := conn.Prepare(t.Context(), "", "select "+tt.call)
		if err != nil {
			t.Errorf("%s: %v", tt.call, err)
			continue
		}
		if got := strings.Fields(strings.Trim(fmt.Sprint(d.ParamOIDs), "[]")); !slices.Equal(got, tt.types) {
			t.Errorf("%s: got the parameter types %v, want %v", tt.call, got, tt.types)
		}
		rows, err := conn.Query(t.Context(), "select "+tt.call, tt.args...)
		if err != nil {
			t.Errorf("%s: %v", tt.call, err)
			continue
		}
		if got, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(got) == 0 || got[0] != tt.want {
			t.Errorf("%s: got %q, %v; want %s", tt.call, got, err, tt.want)
		}
	}
}

// TestFunctionsFromPythonAndNode calls functions from Python and Node.js with the number types of these languages.
func TestFunctionsFromPythonAndNode(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	conn, dsn := openSession(t)
	mustExec(t, conn, clientLimits)
	dir := t.TempDir()
	for _, name := range []string{"calls.py", "calls.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata/clients", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	dbtest.InstalledPath(t, "/usr/lib/python3/dist-packages/psycopg", "python3-psycopg")
	if err := os.Symlink(dbtest.NodeModules(t, "../../internal/testing/doctest/testdata/node"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"take_all decimals": {"true", "49"},
		"take_all integers": {"true", "999999999999999"},
		"take_all_once":     {"true", "false"},
		"extend_all":        {"true", "3.5"},
		"settle_all":        {"1"},
		"reserve_all":       {"true", "00:00:00"},
		"take_up_to":        {"50"},
		"take_float":        {"true", "999999999999999"},
		"enforce":           {"true"},
	}
	for _, program := range [][]string{
		{dbtest.Program(t, "/usr/bin/python3", "python3"), "calls.py", dsn},
		{dbtest.Program(t, "node", "nodejs"), "calls.mjs", dsn},
	} {
		cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v\n%s%s", program[1], err, out, &stderr)
			continue
		}
		text := strings.NewReplacer(`"True"`, `"true"`, `"False"`, `"false"`, `"0:00:00"`, `"00:00:00"`).Replace(string(out))
		var got map[string][]string
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %v, %v\nwant %v", program[1], got, err, want)
		}
	}
}
