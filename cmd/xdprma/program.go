package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// findProgram returns the path of what a rank of this machine runs, in a folder that is an absolute
// path and with these variables beyond those of this process. It finds what the script of another
// host does there: a name with a slash begins at the folder, and another one is looked for on the rank's PATH.
func findProgram(name, folder string, env []string) (string, error) {
	if _, err := os.Stat(folder + "/."); err != nil { // which takes the right to enter it
		return "", &exitError{statusNotRunnable, fmt.Errorf("cannot enter the folder %s; --wdir names another (%w)", folder, errors.Unwrap(err))}
	}
	search := os.Getenv("PATH")
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			search = value
		}
	}
	if strings.Contains(name, "/") {
		search = ""
	}
	for _, at := range strings.Split(search, ":") {
		path := within(folder, filepath.Join(at, name))
		_, err := exec.LookPath(path)
		if err == nil {
			return path, nil
		}
		if _, missing := os.Stat(path); missing == nil && strings.Contains(name, "/") {
			return "", &exitError{statusNotRunnable, fmt.Errorf("the program %s cannot be run: %w", name, errors.Unwrap(err))}
		}
	}
	return "", &exitError{statusNotFound, fmt.Errorf("no program %s is found", name)}
}

// within returns path, which begins at a folder unless it is absolute.
func within(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}
