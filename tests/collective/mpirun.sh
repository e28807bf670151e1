#!/bin/sh
# mpirun.sh MPIRUN RANKS PROGRAM [ARGUMENT...]: on this host, as the current user.
set -eu
mpirun=$1 ranks=$2
shift 2
if [ "$(id -u)" = 0 ]; then set -- --allow-run-as-root "$@"; fi
exec "$mpirun" --oversubscribe --bind-to none --mca btl self,vader -n "$ranks" "$@"
