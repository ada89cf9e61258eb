package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v3"
)

// manCommand prints the manual page. It is made from what the commands say of themselves, so
// it is never older than they are.
func manCommand() *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the manual page",
		Description: "Prints the manual page in roff. To read it: xdprma man | man -l -",
		Action:      func(_ context.Context, c *cli.Command) error { return writeManual(os.Stdout, c.Root()) },
	}
}

// writeManual writes the manual page of app.
func writeManual(to io.Writer, app *cli.Command) error {
	w := bufio.NewWriter(to)
	release, _, _ := strings.Cut(app.Version, ",")
	fmt.Fprintf(w, ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", strings.ToUpper(app.Name), app.Name, roff(release))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", app.Name, roff(app.Usage))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n.I command\n[option...] [argument...]\n", app.Name)
	fmt.Fprint(w, ".SH OPTIONS\n")
	writeFlags(w, app)
	fmt.Fprint(w, ".SH COMMANDS\n")
	for _, c := range app.VisibleCommands() {
		fmt.Fprintf(w, ".SS %s %s %s\n", app.Name, c.Name, roff(c.ArgsUsage))
		writeText(w, c.Usage+".")
		writeText(w, c.Description)
		for _, sub := range c.VisibleCommands() {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(sub.Name), roff(sub.Usage))
		}
		writeFlags(w, c)
	}
	return w.Flush()
}

func writeFlags(w io.Writer, c *cli.Command) {
	for _, f := range c.VisibleFlags() {
		names, text, _ := strings.Cut(f.String(), "\t")
		fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(names)), roff(text))
	}
}

// writeText writes paragraphs and lists. An item of a list is indented by two spaces, and two
// more stand between its name and what it means. Lines that are indented further go on with
// the item.
func writeText(w io.Writer, text string) {
	fmt.Fprintln(w, ".PP")
	listing := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		words := strings.TrimLeft(line, " ")
		switch indent := len(line) - len(words); {
		case words == "":
			fmt.Fprintln(w, ".PP")
		case indent == 2:
			name, meaning, _ := strings.Cut(words, "  ")
			fmt.Fprintf(w, ".TP\n.B %s\n", roff(name))
			if meaning = strings.TrimSpace(meaning); meaning != "" {
				fmt.Fprintln(w, roff(meaning))
			}
		case indent == 0 && listing:
			fmt.Fprintf(w, ".PP\n%s\n", roff(words))
		default:
			fmt.Fprintln(w, roff(words))
		}
		listing = strings.HasPrefix(line, " ")
	}
}

// roff returns text, a line or part of one, as roff shows it unchanged.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
