// Command headgate limits rates: it serves, charges, explains and replays. See
// README.md.
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

// Exit codes.
const (
	exitOK      = 0
	exitRefused = 1
	exitError   = 2
)

// errRefused makes the command exit with exitRefused; the decision has been
// printed.
var errRefused = errors.New("refused")

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if len(os.Args) < 2 || os.Args[1] != "serve" { // which reads its file again
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), notIgnored(ends...)...)
	code := perform(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if code == 128+int(syscall.SIGINT) {
		dieOfInterrupt()
	}
	os.Exit(code)
}

// notIgnored leaves out signals that the parent process wants to be ignored, as nohup
// does, which to notify of would undo: as far as Go knows of them, HUP and INT.
func notIgnored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, signal.Ignored)
}

// perform runs the program, for tests too.
func perform(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
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
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), hidden(err.Error(), args))
	return exitError
}

// secretive is the form of what may hold a password: a URL, or what a driver reads.
var secretive = regexp.MustCompile(`(?i)://|:[^/]*@|passw|pwd`)

// hidden takes arguments that may hold a password out of a message. Cobra repeats what
// it has no use for, such as the URL of migrate URL or of -store=URL.
func hidden(text string, args []string) string {
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, said := range []string{arg, value} {
			if !secretive.MatchString(said) {
				continue
			}
			quoted := strconv.Quote(said)
			text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], "...")
			text = strings.ReplaceAll(text, said, "...")
		}
	}
	return text
}

// moreCommands make the commands that build tags add.
var moreCommands []func() *cobra.Command

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "headgate",
		Short:         "Exact rate limits on the database that you already run",
		Long:          "Headgate limits rates exactly, on the database that you already run.\n\n" + aboutLimit,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root { // the flag may be right, and the command before it wrong
			err = cmp.Or(knownCommand(cmd, cmd.Flags().Args()), err)
		}
		return err
	})
	root.SetVersionTemplate(versionText())
	addCommands(root)
	return root
}

// addUsage adds the usage to errors about the number of arguments.
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

// knownCommand says that the first argument is no command, and which it may mean.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	// An argument of another form may be anything, a URL with a password too.
	name, meant := "", ""
	if commandForm.MatchString(args[0]) {
		name = " " + strconv.Quote(args[0])
		cmd.SuggestionsMinimumDistance = 2
		if near := nearTo(cmd, args[0]); near != "" {
			meant = "; " + near
		}
	}
	return fmt.Errorf("unknown command%s%s (%s --help lists them)", name, meant, cmd.CommandPath())
}

var commandForm = regexp.MustCompile(`^[a-zA-Z_-]{1,24}$`)
