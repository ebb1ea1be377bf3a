// Command headgate limits rates: it serves, charges, explains and replays. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	_ "time/tzdata" // calendars work where the system has no time zones

	"github.com/spf13/cobra"
)

// Exit codes; those of run are in run.go.
const (
	exitOK      = 0
	exitRefused = 1
	exitError   = 2
)

// errRefused makes the command exit with exitRefused, after it has printed the decision.
var errRefused = errors.New("refused")

func main() {
	endSignals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if len(os.Args) < 2 || os.Args[1] != "serve" { // serve reloads its file on SIGHUP
		endSignals = append(endSignals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), notIgnored(endSignals...)...)
	code := runMain(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if code == 128+int(syscall.SIGINT) {
		exitBySIGINT()
	}
	os.Exit(code)
}

// notIgnored returns signals without those that this process ignores because its parent, such as nohup, said so:
// signal.Notify would catch them. Go can tell this of SIGHUP and SIGINT only.
func notIgnored(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }

// runMain runs the command of args and returns its exit code. Tests call it too.
func runMain(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errRefused):
		return exitRefused
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), redactSecrets(err.Error(), args))
	return exitError
}

// secretPattern matches text that may hold a password: a URL, or another form of address that a driver reads.
var secretPattern = regexp.MustCompile(`(?i)://|:[^/]*@|passw|pwd`)

// redactSecrets replaces arguments that may hold a password by dots in a message. Cobra repeats arguments that it does
// not expect, such as the URL of "migrate URL" or of "-store=URL".
func redactSecrets(text string, args []string) string {
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, secret := range []string{arg, value} {
			if !secretPattern.MatchString(secret) {
				continue
			}
			quoted := strconv.Quote(secret)
			text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], "...")
			text = strings.ReplaceAll(text, secret, "...")
		}
	}
	return text
}

// taggedCommands has a constructor for each command that a build tag adds.
var taggedCommands []func() *cobra.Command

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "headgate",
		Short:         "Exact rate limits on the database that you already run",
		Long:          "Headgate limits rates exactly, on the database that you already run.\n\n" + aboutLimit,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          requireKnownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root { // perhaps the flag is right, and the name of the command before it is wrong
			err = cmp.Or(requireKnownCommand(cmd, cmd.Flags().Args()), err)
		}
		return err
	})
	root.SetVersionTemplate(versionText())
	addCommands(root)
	return root
}

// addUsage adds the usage line to errors about arguments, for all commands below cmd that have no subcommands.
func addUsage(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		addUsage(c)
		if check := c.Args; check != nil && !c.HasSubCommands() {
			c.Args = func(c *cobra.Command, args []string) error {
				if err := check(c, args); err != nil {
					return fmt.Errorf("%w; usage: %s", err, c.UseLine())
				}
				return nil
			}
		}
	}
}

// requireKnownCommand returns an error if there are arguments, since the first one names no command below cmd. The
// error lists similar names.
func requireKnownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	// An argument of another form is not repeated: it may be a URL with a password.
	name, hint := "", ""
	if commandPattern.MatchString(args[0]) {
		name = " " + strconv.Quote(args[0])
		cmd.SuggestionsMinimumDistance = 2 // the most edits, despite its name
		if similar := didYouMean(cmd, args[0]); similar != "" {
			hint = "; " + similar
		}
	}
	return fmt.Errorf("unknown command%s%s (%s --help lists them)", name, hint, cmd.CommandPath())
}

var commandPattern = regexp.MustCompile(`^[a-zA-Z_-]{1,24}$`)
