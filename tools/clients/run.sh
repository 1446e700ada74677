#!/bin/sh
# run.sh ETC: serves the chat checkpoint and runs clients.test.mjs and openapi.test.mjs against it, then tools.test.mjs and suites
# that others wrote for servers against a scripted model (runtime/serve/suites_test.go). It is called from the root of the
# repository. What cannot be had is skipped and says why. ETC_OPENAPI, ETC_EXECUTORCH_CONTRACT and ETC_LLAMA_TESTS name copies of what is fetched.
set -e
etc=$PWD/$1
dir=$(mktemp -d)
trap 'test -z "$server" || kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
"$etc" export testdata/checkpoints/qwen35moe-chat -o "$dir/qwen.pte" --max-seq-len 512
: >"$dir/log" # there before the server writes it
"$etc" serve "$dir/qwen.pte" --port 0 --device cpu 2>"$dir/log" &
server=$!
for _ in $(seq 600); do
	ETC_URL=$(sed -n 's/^etc: serving .* on //p' "$dir/log")
	test -z "$ETC_URL" && kill -0 "$server" 2>/dev/null || break
	sleep 0.1
done
test -n "$ETC_URL" || { cat "$dir/log" >&2; exit 1; }
(cd tools/clients && ETC_URL=$ETC_URL npm test)
ETC_CLIENTS=$PWD/tools/clients # tools.test.mjs runs below, against a scripted model

# Of llama.cpp's tests, which are many files, there is a copy where make bench-peers has built it.
llama=${XDG_CACHE_HOME:-$HOME/.cache}/etc-peers/llama.cpp/tools/server/tests
test -n "$ETC_LLAMA_TESTS" || test ! -d "$llama" || ETC_LLAMA_TESTS=$llama
if test -z "$ETC_EXECUTORCH_CONTRACT"; then
	node tools/clients/fetch.mjs \
		https://raw.githubusercontent.com/pytorch/executorch/cff6f4dd32e630945b7188512c1f2b4f102b05ad/examples/llm_server/conformance/test_openai_contract.py \
		427127b900e4cc603d92ed011d03b2ca29a03c8153fcf56dba577a6ff3c72028 "$dir/test_openai_contract.py" &&
		ETC_EXECUTORCH_CONTRACT=$dir/test_openai_contract.py || true
fi
export ETC_CLIENTS ETC_LLAMA_TESTS ETC_EXECUTORCH_CONTRACT
${GO:-go} test ./runtime/serve -count=1 -timeout 5m -v -run '^(TestToolClients|TestExecuTorchContract|TestLlamaSuite)$'
