package main

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"
)

// home is where releases are published.
const home = "https://github.com/etc-ml/etc"

// formulaText is a Homebrew formula that installs a platform's archive. Macs with Intel processors have none.
var formulaText = template.Must(template.New("formula").Parse(`class {{.Class}} < Formula
  desc "Compile language models to ExecuTorch programs and run them"
  homepage "{{.Home}}"
  version "{{.Version}}"
  license "Apache-2.0"

  on_macos do
    depends_on arch: :arm64
    on_arm do
      url "{{.URL .DarwinARM}}"
      sha256 "{{.Sum .DarwinARM}}"
    end
  end

  on_linux do
    on_intel do
      url "{{.URL .LinuxAMD}}"
      sha256 "{{.Sum .LinuxAMD}}"
    end
    on_arm do
      url "{{.URL .LinuxARM}}"
      sha256 "{{.Sum .LinuxARM}}"
    end
  end

  def install
    bin.install "{{.Name}}"
    man1.install "{{.Name}}.1"
    generate_completions_from_executable(bin/"{{.Name}}", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/{{.Name}} version")
  end
end
`))

// formulaValues are what the template needs.
type formulaValues struct {
	Name, Class, Home, Version, tag string

	DarwinARM, LinuxAMD, LinuxARM artifact
}

// URL is where an archive is published.
func (v formulaValues) URL(a artifact) string {
	return fmt.Sprintf("%s/releases/download/%s/%s", v.Home, v.tag, a.name)
}

// Sum returns an archive's SHA-256 in hex.
func (formulaValues) Sum(a artifact) string { return fmt.Sprintf("%x", a.sha256) }

// formula writes the Homebrew formula of the archives.
func formula(name, version string, archives []artifact) ([]byte, error) {
	v := formulaValues{Name: name, Class: strings.ToUpper(name[:1]) + name[1:], Home: home,
		Version: strings.TrimPrefix(version, "v"), tag: version}
	for _, x := range []struct {
		of   platform
		into *artifact
	}{
		{platform{os: "darwin", arch: "arm64"}, &v.DarwinARM},
		{platform{os: "linux", arch: "amd64"}, &v.LinuxAMD},
		{platform{os: "linux", arch: "arm64"}, &v.LinuxARM},
	} {
		for _, a := range archives {
			if a.of == x.of {
				*x.into = a
			}
		}
		if x.into.name == "" {
			return nil, fmt.Errorf("the formula needs an archive for %s", x.of)
		}
	}
	var b bytes.Buffer
	err := formulaText.Execute(&b, v)
	return b.Bytes(), err
}
