package main

import (
	"strconv"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// settings is what the environment of `xdprma run` says for all ranks.
type settings struct {
	transport  string // empty: nothing
	port       int    // -1: nothing, 0: the system chooses
	queueLimit int    // 0: none
	useFrames  bool
	noExpress  bool
}

// noSettings is what an environment without any of the variables says.
var noSettings = settings{port: -1}

// settingsFrom reads the environment. In that of a rank the variables are about this
// rank, and say nothing of a job that it starts.
func settingsFrom(getenv func(string) string) (s settings, err error) {
	s = noSettings
	if getenv(bootstrap.EnvRendezvous) != "" {
		return s, nil
	}
	if s.transport = getenv(bootstrap.EnvTransport); s.transport != "" {
		if _, err := bootstrap.ParseTransport(s.transport); err != nil {
			return s, usageError("%s: %w", bootstrap.EnvTransport, err)
		}
	}
	express, err := bootstrap.ParseSwitch(getenv(bootstrap.EnvExpress), true)
	if err != nil {
		return s, usageError("%s: %w", bootstrap.EnvExpress, err)
	}
	s.noExpress = !express
	frames := 0
	for _, v := range []struct {
		name        string
		to          *int
		least, most int
	}{
		{bootstrap.EnvPort, &s.port, 0, 65535},
		{bootstrap.EnvQueues, &s.queueLimit, 1, bootstrap.MaxQueues},
		{bootstrap.EnvFrames, &frames, 0, 1},
	} {
		text := getenv(v.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < v.least || n > v.most {
			return s, usageError("%s is %q, it must be %d to %d", v.name, text, v.least, v.most)
		}
		*v.to = n
	}
	s.useFrames = frames == 1
	return s, nil
}
