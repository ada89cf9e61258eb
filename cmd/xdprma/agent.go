package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device/agent"
)

const agentDescription = `Has the kernel execute small requests to all ranks of this host, whoever runs them: the ranks
need no privilege. The agent runs as root. It puts a program on an interface when the first rank there
starts, at tc where the kernel has tcx (Linux 6.6), and else as generic XDP, and takes it away
with the last one. Ranks go on over UDP while there is no agent.

Ranks find the agent by its socket, which they look for at ` + agent.DefaultPath + `, or
where XDPRMA_AGENT says. Who may write to the socket's file may use it.

Let all users enter on Linux 6.1.97, 6.6.37, 6.9.8 or 6.10 and later alone; SECURITY.md says why.

Limits are those of each user in a network namespace, so of each pod. Frames to
ranks that the program executes pass no input rule of netfilter.

With --status it lists the ranks that the agent there serves: their user, the memory of that user in the network
namespace, and how many requests were executed for them.

It runs until SIGINT or SIGTERM. Exit status: 0 then, 125 if it cannot serve, 2 for a wrong command line.`

func agentCommand() *cli.Command {
	return &cli.Command{
		Name:        "agent",
		Usage:       "share XDP among all ranks of this host",
		Description: agentDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "socket", Value: agent.DefaultPath, Usage: "the path of the Unix socket at which ranks enter"},
			&cli.StringFlag{Name: "mode", Value: "0666", Usage: "who may enter: the mode of the socket's file"},
			&cli.StringFlag{Name: "group", Usage: "the group of the socket's file, by name or number, such as with --mode 0660"},
			&cli.StringSliceFlag{Name: "interface", Usage: "serve ranks at interfaces of this name alone, in any network namespace; may be given several times"},
			&cli.StringSliceFlag{Name: "native", Usage: "keep a program in the driver of this network interface, by native XDP, as long as the agent runs; may be given several times"},
			&cli.StringFlag{Name: "ports", Usage: "serve ranks at these UDP ports alone, such as 7000-7999"},
			&cli.IntFlag{Name: "ranks", Value: 256, Usage: "most ranks of a user in one network namespace"},
			&cli.IntFlag{Name: "memory", Value: 4096, Usage: "most memory of a user in one network namespace, in MiB, which windows and tables have in the kernel"},
			&cli.IntFlag{Name: "switches", Value: 64, Usage: "most interfaces to which a user brings the agent's program, and most network namespaces in which it has ranks or memory"},
			&cli.BoolFlag{Name: "verbose", Usage: "report who is turned away, too"},
			&cli.BoolFlag{Name: "status", Usage: "list the ranks that the agent at the socket serves, those of others for root alone"},
			&cli.BoolFlag{Name: "json", Usage: "with --status: print JSON, a rank a line"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Bool("status") {
				return listRanks(ctx, c.String("socket"), c.Bool("json"), os.Stdout)
			}
			config, err := agentConfig(c)
			if err != nil {
				return err
			}
			return serveRanks(ctx, config)
		},
	}
}

// agentConfig reads the command line.
func agentConfig(c *cli.Command) (config agent.Config, err error) {
	if c.Args().Present() {
		return config, usageError("agent takes no arguments, and is given %q", c.Args().First())
	}
	level := slog.LevelInfo
	if c.Bool("verbose") {
		level = slog.LevelDebug
	}
	config = agent.Config{
		Path: c.String("socket"), Interfaces: c.StringSlice("interface"), Native: c.StringSlice("native"),
		Limits: agent.Limits{Ranks: c.Int("ranks"), Memory: int64(c.Int("memory")) << 20, Switches: c.Int("switches")},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
	for _, name := range []string{"ranks", "memory", "switches"} {
		if c.Int(name) < 1 {
			return config, usageError("--%s is %d, it must be at least 1", name, c.Int(name))
		}
	}
	if !filepath.IsAbs(config.Path) {
		return config, usageError("--socket is %q, it must be a path that begins with a slash", config.Path)
	}
	mode, err := strconv.ParseUint(c.String("mode"), 8, 32)
	if err != nil || mode == 0 || mode > 0o777 {
		return config, usageError("--mode is %q, it must be an octal number such as 0660", c.String("mode"))
	}
	config.Mode = os.FileMode(mode)
	if name := c.String("group"); name != "" {
		g, err := user.LookupGroup(name)
		if err != nil {
			if g, err = user.LookupGroupId(name); err != nil {
				return config, usageError("--group: there is no group %q", name)
			}
		}
		if config.Group, err = strconv.Atoi(g.Gid); err != nil {
			return config, usageError("--group: group %q has the number %q", name, g.Gid)
		}
	}
	if text := c.String("ports"); text != "" {
		if config.Ports, err = parsePorts(text); err != nil {
			return config, usageError("--ports: %w", err)
		}
	}
	return config, nil
}

// listRanks prints whom an agent serves.
func listRanks(ctx context.Context, socket string, asJSON bool, w io.Writer) error {
	ranks, err := agent.Status(ctx, socket)
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(w)
		for _, r := range ranks {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "USER\tNETWORK NAMESPACE\tMEMORY\tINTERFACE\tADDRESS\tMODE\tEXECUTED")
	for _, r := range ranks {
		name := strconv.Itoa(int(r.User))
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		fmt.Fprintf(t, "%s\t%d\t%d KiB\t%s\t%s\t%s\t%d\n", name, r.Namespace, r.Memory>>10, r.Interface, r.Address, r.Mode, r.Executed)
	}
	return t.Flush()
}

// parsePorts reads a range of ports, or one port.
func parsePorts(text string) (ports [2]uint16, err error) {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	for i, word := range []string{first, last} {
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil || n == 0 {
			return ports, fmt.Errorf("%q is no range of ports such as 7000-7999", text)
		}
		ports[i] = uint16(n)
	}
	if ports[0] > ports[1] {
		return ports, fmt.Errorf("%q begins behind its end", text)
	}
	return ports, nil
}

// serveRanks is the agent, until a signal.
func serveRanks(ctx context.Context, config agent.Config) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := os.MkdirAll(filepath.Dir(config.Path), 0o755); err != nil {
		return err
	}
	s, err := agent.Serve(config)
	if err != nil {
		return err
	}
	config.Logger.Info("serving ranks", "socket", config.Path, "mode", fmt.Sprintf("%04o", config.Mode))
	<-ctx.Done()
	return s.Close()
}
