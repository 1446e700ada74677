#!/bin/sh
# vendor.sh fetches the libraries of static/vendor from npm, checks them, and writes them there. It needs npm, tar and openssl.
# Without arguments it only says whether the files that are there are those of the packages; -w writes them.
# To take a new version: change its line here, run vendor.sh -w, run the tests of tools/page, and commit what has changed.
set -eu
cd "$(dirname "$0")"

# package version | integrity of the package, as the registry tells it | files and what they are called here
packages='
marked 18.2.1|sha512-ii4bxCTCqqwpT86XZWgJNs+ZnAIZksmLGYMViWA7PDIXYIeNo1x6cDdX3JOip9NM/cI6p8z57FxliACboTruMA==|lib/marked.esm.js:marked.js LICENSE:marked.LICENSE
dompurify 3.4.18|sha512-ofe3wI/uNm68HInABYFJYqQxRw1EaKAjNdrFVKqjUY+UZurvNd2L/HuQe097s/4RivWiZyP6tT7aoT8atjfhwg==|dist/purify.min.js:purify.js LICENSE:purify.LICENSE
@highlightjs/cdn-assets 11.12.0|sha512-KvOKXODaiFmId9xaq3xc5xCL66wVLUuOngDbO9B/kewbFTqdGbn2nJxNhN3H5R1cgDTVj6R8vH0zgiNDEGjpDw==|es/highlight.min.js:highlight.js LICENSE:highlight.LICENSE
'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "$packages" | while IFS='|' read -r package integrity files; do
	test -n "$package" || continue
	spec=${package% *}@${package#* }
	tarball=$work/$(cd "$work" && npm pack --silent "$spec")
	got=sha512-$(openssl dgst -sha512 -binary "$tarball" | openssl base64 -A)
	test "$got" = "$integrity" || { echo "$spec: integrity $got, want $integrity" >&2; exit 1; }
	for pair in $files; do
		tar -xzOf "$tarball" "package/${pair%:*}" >"$work/file"
		if test "${1:-}" = -w; then
			cp "$work/file" "static/vendor/${pair#*:}"
		elif ! cmp -s "$work/file" "static/vendor/${pair#*:}"; then
			echo "static/vendor/${pair#*:} is not ${pair%:*} of $spec" >&2
			exit 1
		fi
	done
done
if test "${1:-}" = -w; then
	(cd static/vendor && sha256sum -- *.js *.LICENSE >SHA256SUMS)
fi
(cd static/vendor && sha256sum --quiet -c SHA256SUMS)
