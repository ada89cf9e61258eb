package bootstrap

import (
	"context"
	"log/slog"
	"os"
)

// readLog takes the level of the log.
func readLog(c *Config, s string) bool {
	c.Log = s
	return s == "debug" || s == "info" || s == "warn" || s == "error"
}

// Logger returns the logger of a program that gives none: at the level that the environment says,
// or that of log/slog from warnings on.
func (c *Config) Logger() *slog.Logger {
	if c.Log == "" {
		return slog.New(quiet{slog.Default().Handler()})
	}
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Log)) // it has been checked
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// quiet passes on warnings and errors.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && q.Handler.Enabled(ctx, l)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
