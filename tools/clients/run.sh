#!/bin/sh
# run.sh ETC: serves the chat checkpoint and runs clients.test.mjs and openapi.test.mjs against it. It is called from the root of the repository.
set -e
etc=$PWD/$1
dir=$(mktemp -d)
trap 'test -z "$server" || kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
"$etc" export testdata/checkpoints/qwen35moe-chat -o "$dir/qwen.pte" --max-seq-len 512
"$etc" serve "$dir/qwen.pte" --port 0 --device cpu 2>"$dir/log" &
server=$!
for _ in $(seq 100); do
	ETC_URL=$(sed -n 's/^etc: serving .* on //p' "$dir/log")
	test -z "$ETC_URL" || break
	sleep 0.1
done
test -n "$ETC_URL" || { cat "$dir/log" >&2; exit 1; }
cd tools/clients
ETC_URL=$ETC_URL npm test
