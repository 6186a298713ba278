#!/bin/sh
# Starts the example of a driver, and has twill judge it. Usage: judge.sh TWILL
set -eu
dir=$(mktemp -d)
: >"$dir/log"
/usr/bin/python3 "$(dirname "$0")/driver.py" api/dataplanepb/dataplane.proto "$dir/sock" >"$dir/log" 2>&1 &
driver=$!
trap 'kill $driver 2>/dev/null || true; rm -rf "$dir"' EXIT
until grep -q serving "$dir/log"; do
	kill -0 $driver 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
	sleep 0.1
done
"$1" dataplane conformance "unix://$dir/sock"
