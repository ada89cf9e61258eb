#!/usr/bin/env bash
# still.sh COMMAND... carries out a command that may be silent for long, such as go build -v, and says after each
# nine seconds without a line on its standard error that it is still at work. It changes neither what the command
# prints nor how it ends. OF is how many lines to expect at most. This is no Go program: that would be silent while
# it is compiled itself.
set -o pipefail
lines=0 begun=
{ "$@" 2>&1 >&3 3>&- | while :; do
	IFS= read -r -t "${STILL_EVERY:-9}" line
	case $? in
	0) lines=$((lines + 1)) && printf '%s\n' "$begun$line" && begun= ;;
	1) printf '%s' "$begun$line" && break ;;
	*) begun+=$line && echo "... still at work after $SECONDS s${OF:+, at $lines of at most $OF packages}: ${*:1:3}" ;;
	esac
done >&2; } 3>&1
