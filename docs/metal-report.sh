#!/bin/sh
# A report of what a GPU gives: sh docs/metal-report.sh metal (or cuda), from the project's root, after make build.
# Every part runs, whatever becomes of those before it; the last line says how many parts passed.
device=$1
passed=0 failed=0
part() { # NAME COMMAND...
	name=$1
	shift
	echo
	echo "== $name"
	if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "-- FAILED: $name"; fi
}

system() {
	uname -mrs
	if command -v sw_vers; then sw_vers && sysctl -n machdep.cpu.brand_string hw.memsize; fi
	go version
	git rev-parse --short HEAD
}
answers() { # CHECKPOINT FLAGS...
	checkpoint=$1
	shift
	bin/etc export "testdata/checkpoints/$checkpoint" "$@" --max-seq-len 512 -o bin/report.pte &&
		bin/etc run bin/report.pte "What is the capital of France?" --device "$device" --temperature 0 --stats | grep 'Paris' &&
		bin/etc eval bin/report.pte --qa "testdata/answers/$checkpoint.json" --device "$device" | grep -x '22/22'
}
bench() {
	bin/etc export testdata/checkpoints/qwen35moe-chat --qlinear 4w --sample --max-seq-len 1024 -o bin/report.pte &&
		bin/etc bench bin/report.pte --device "$device" -p 512 -n 128
}

part "system" system
part "etc doctor" bin/etc doctor
part "self-tests of every kernel" env ETC_KERNELTEST_DEVICE="$device" go test -count=1 ./runtime/gpu/kernels
part "self-tests of launches" env ETC_TEST_DEVICE="$device" go test -count=1 ./runtime/gpu/selftest
part "device" go test -count=1 ./runtime/gpu/metal/... ./runtime/gpu/cuda/...
part "whole models" env ETC_TEST_DEVICE="$device" go test -count=1 -timeout 30m ./runtime/gpu
part "recorded answers, 4 bits" answers qwen35moe-chat --qlinear 4w --sample
part "recorded answers, bf16" answers gemma4-chat
part "bench" bench
part "kernels that passed and failed" bin/etc doctor
[ -z "$MODEL" ] || part "bench of $MODEL" bin/etc bench "$MODEL" --device "$device" -p 512,4096 -n 128
echo
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
