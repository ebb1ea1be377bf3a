package config

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Setting is a value that a flag, a variable or the file can say: --wait-store,
// HEADGATE_WAIT_STORE and wait_store are the same one. The first that says something
// counts, in this order, then the default.
type Setting struct {
	Name    string // in the file
	Help    string // one line; what the value is stands in backquotes
	Default string // for help texts; empty: there is none
	NotFile bool   // it is not in the file
}

// The settings.
var (
	File      = Setting{Name: "config", Help: "config `file`", NotFile: true}
	Server    = Setting{Name: "server", Help: "`URL` of a server to ask instead of a store", NotFile: true}
	Store     = Setting{Name: "store", Help: "`URL` of the store; one with a password belongs in the variable, since all users of the machine can see flags", Default: DefaultStore}
	HTTP      = Setting{Name: "http", Help: "`address` to listen on", Default: DefaultHTTP}
	WaitStore = Setting{Name: "wait_store", Help: "for how `long` to wait at the start for a store that is away, such as 30s; 0 tries once", Default: "no limit"}
)

// Settings are all of them, in the order of the documentation.
var Settings = []Setting{Store, HTTP, WaitStore, File, Server}

// Flag is its name on the command line, without the dashes.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Name, "_", "-") }

// Variable is its name in the environment.
func (s Setting) Variable() string { return "HEADGATE_" + strings.ToUpper(s.Name) }

// Usage is the help text of its flag.
func (s Setting) Usage() string {
	if s.Default == "" {
		return s.Help + " (" + s.Variable() + ")"
	}
	return s.Help + " (" + s.Variable() + "; default " + s.Default + ")"
}

// Row is its row in the table of the documentation.
func (s Setting) Row() string {
	file, preset := "`"+s.Name+"`", "`"+s.Default+"`"
	if s.NotFile {
		file = ""
	}
	if !strings.ContainsAny(s.Default, ":0123456789") {
		preset = s.Default
	}
	return fmt.Sprintf("| `--%s` | `%s` | %s | %s | %s |", s.Flag(), s.Variable(), file, preset, strings.ReplaceAll(s.Help, "`", ""))
}

// Flags looks up a flag: its value, and whether it was given.
type Flags func(name string) (value string, given bool)

// Said is what was said of a setting.
type Said struct {
	Value string // the default where nothing was said
	By    string // the flag, the variable or the file; empty: nobody said anything
}

// of names the place where it was said.
func (s Said) of(setting Setting) string {
	if strings.HasPrefix(s.By, "--") || s.By == setting.Variable() {
		return s.By
	}
	return s.By + ": " + setting.Name
}

// Get returns what is said of a setting. A flag or variable that is given and empty is
// an error and not the default: mostly it is a variable that should have been set.
func (c *Config) Get(s Setting, flags Flags) (Said, error) {
	said := Said{Value: s.Default}
	if value, ok := flags(s.Flag()); ok {
		said = Said{value, "--" + s.Flag()}
	} else if value, ok := os.LookupEnv(s.Variable()); ok {
		said = Said{value, s.Variable()}
	} else if value, ok := c.said[s.Name]; ok {
		said = Said{value, c.File}
	}
	if said.By != "" && said.Value == "" {
		what := "leave it out"
		if s.Default != "" {
			what += " for the default, " + s.Default
		}
		return said, fmt.Errorf("%w: %s: is empty; %s", headgate.ErrInvalid, said.By, what)
	}
	return said, nil
}

// Duration returns a length of time, and whether anything was said of it.
func (c *Config) Duration(s Setting, flags Flags) (d time.Duration, given bool, err error) {
	said, err := c.Get(s, flags)
	if err != nil || said.By == "" {
		return 0, false, err
	}
	if d, err = time.ParseDuration(said.Value); err != nil || d < 0 {
		return 0, true, fmt.Errorf("%w: %s: %q is not a length of time such as 30s", headgate.ErrInvalid, said.of(s), said.Value)
	}
	return d, true, nil
}

// Count returns a whole number from 0 on, and whether anything was said of it.
func (c *Config) Count(s Setting, flags Flags) (n int64, given bool, err error) {
	said, err := c.Get(s, flags)
	if err != nil || said.By == "" {
		return 0, false, err
	}
	if n, err = strconv.ParseInt(said.Value, 10, 64); err != nil || n < 0 {
		return 0, true, fmt.Errorf("%w: %s: %q is not a number from 0 on", headgate.ErrInvalid, said.of(s), said.Value)
	}
	return n, true, nil
}
