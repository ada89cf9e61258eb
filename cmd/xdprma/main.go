// Command xdprma starts jobs, measures them, and says what a machine can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/xdprma/xdprma/internal/spelling"
)

// Exit statuses of xdprma's own, after the custom of env(1) and timeout(1).
// Others are those of the programs that it ran.
const (
	statusUsage       = 2
	statusTimeout     = 124
	statusFailed      = 125 // xdprma itself failed
	statusNotRunnable = 126
	statusNotFound    = 127
	statusSignal      = 128 // plus the number of the signal that killed a rank
)

// exitError ends xdprma with a status, after printing err. If that is nil, all has been said.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a mistake in the command line.
func usageError(format string, args ...any) error {
	return &exitError{statusUsage, fmt.Errorf(format, args...)}
}

// commands are the constructors of the subcommands; each file of a subcommand
// adds its own.
var commands = []func() *cli.Command{runCommand, lendCommand, agentCommand, keyCommand, infoCommand, perfCommand, perfRankCommand, perfBusyCommand, guardCommand, manCommand}

const completionDescription = `For the present shell, or in the shell's start-up file:
  bash  source <(xdprma completion bash); this takes the package bash-completion
  zsh   source <(xdprma completion zsh)
  fish  xdprma completion fish | source`

func main() {
	app := &cli.Command{
		Name:                  "xdprma",
		Usage:                 "one-sided communication over AF_XDP: start jobs and inspect machines",
		Version:               version(),
		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden = false
			c.Usage = "print a script by which a shell completes commands and flags"
			c.Description = completionDescription
		},
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // main does it
		OnUsageError: func(_ context.Context, c *cli.Command, err error, _ bool) error {
			// A flag behind a name that is no command is not defined, and that is not what is wrong.
			if name := os.Args[1]; !strings.HasPrefix(name, "-") && c.Root().Command(name) == nil {
				return unknownCommand(c, name)
			}
			return &exitError{statusUsage, explained(err)}
		},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return unknownCommand(c, c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, command := range commands {
		c := command()
		c.OnUsageError = app.OnUsageError
		app.Commands = append(app.Commands, c)
	}
	os.Exit(status(app.Run(context.Background(), os.Args)))
}

// unknownCommand says that there is no command of a name.
func unknownCommand(c *cli.Command, name string) error {
	var names []string
	for _, command := range c.Root().VisibleCommands() {
		names = append(names, command.Name)
	}
	if near, like := spelling.Nearest(name, names); like {
		return usageError("there is no command %q: is %s meant? See xdprma --help", name, near)
	}
	return usageError("there is no command %q; see xdprma --help", name)
}

// explained returns the flag library's err with words for what to write instead.
func explained(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, ": time: "):
		return fmt.Errorf("%w: write a number with a unit, such as 90s, 500ms or 2m", err)
	case strings.Contains(text, "strconv.ParseInt"):
		said, _, _ := strings.Cut(text, ": strconv.ParseInt")
		return fmt.Errorf("%s: write a whole number", said)
	case strings.HasSuffix(text, ": parse error"):
		return fmt.Errorf("%s: write true or false", strings.TrimSuffix(text, ": parse error"))
	case strings.Contains(text, "not defined"), strings.Contains(text, "needs an argument"):
		return fmt.Errorf("%w: --help lists the flags", err)
	}
	return err
}

// version names the module's version, the commit with the time of its day where it was
// built from a checkout, and the Go version.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s, %s, %s/%s", info.Main.Version, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}

// status prints what is to be printed of err and returns the exit status.
func status(err error) int {
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exitError](err)
	if !ok {
		exit = &exitError{statusFailed, err}
	}
	if text := strings.TrimSpace(err.Error()); text != "" {
		fmt.Fprintln(os.Stderr, "xdprma:", text)
	}
	return exit.status
}
