#!/usr/bin/env bash
# Stands for ssh: runs a launcher's command in the namespace that the host names.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts bash -c "hostname $host; $*"
