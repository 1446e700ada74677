package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/etc-ml/etc/internal/minisign"
)

// A platform is what an archive is for.
type platform struct {
	os, arch string
	// static leaves the loader of CUDA out (-tags nocuda), which makes a binary for Linux dynamic.
	static bool
}

// platforms are those that etc is released for. A static binary runs where there is no C library, as in containers.
var platforms = []platform{
	{os: "darwin", arch: "arm64"},
	{os: "linux", arch: "amd64"},
	{os: "linux", arch: "amd64", static: true},
	{os: "linux", arch: "arm64"},
	{os: "linux", arch: "arm64", static: true},
	{os: "windows", arch: "amd64"},
}

// String returns the platform as names of files have it, as in linux_amd64_static.
func (p platform) String() string {
	if p.static {
		return p.os + "_" + p.arch + "_static"
	}
	return p.os + "_" + p.arch
}

// A release is what is built, and how.
type release struct {
	repository string // the folder of the git repository
	name       string // of the program
	pkg        string // the program's package
	platforms  []platform
	number     string // the version that the tag must have, without the v
	snapshot   bool
	key        *minisign.PrivateKey // nil: nothing is signed
	// materials gives the bill of materials of a binary; repository is the folder with tools/release.mod.
	materials func(ctx context.Context, repository, binary string) ([]byte, error)
	manual    bool // the program prints its manual page when its argument is "man"
	formula   bool // write a Homebrew formula
	log       io.Writer
}

// An artifact is a file of the release.
type artifact struct {
	name   string
	sha256 [sha256.Size]byte
	of     platform // what an archive is for
}

// write makes the release in the folder out, which must be empty or not exist.
func (r release) write(ctx context.Context, out string) error {
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove what is in it, or name another folder with -o", out)
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	s, err := r.checkOut(ctx, filepath.Join(work, "source"))
	if err != nil {
		return err
	}
	version, err := r.build(ctx, s, work)
	if err != nil {
		return err
	}
	if s.tag != "" && version != s.tag {
		return fmt.Errorf("the tag is %s, and Go stamped %s: a tag is a version as in v1.2.3, and HEAD has no other",
			s.tag, version)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	return r.assemble(ctx, s, work, out, version)
}

// build builds the binaries into folders of work that have the platforms' names, and gives the version that Go stamped.
func (r release) build(ctx context.Context, s source, work string) (version string, err error) {
	for _, p := range r.platforms {
		fmt.Fprintf(r.log, "building %s\n", p)
		binary := r.binary(work, p)
		args := []string{"build", "-trimpath", "-buildvcs=true", "-o", binary}
		if p.static {
			args = append(args, "-tags=nocuda")
		}
		cmd := exec.CommandContext(ctx, "go", append(args, r.pkg)...)
		cmd.Dir = s.dir
		// The machine's own settings must not change the binary.
		cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOFLAGS=",
			"GOWORK=off", "GOEXPERIMENT=",
			"GOAMD64=v1", "GOARM64=v8.0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build for %s: %w\n%s", p, err, text)
		}
		if p.static {
			if err := checkStatic(binary); err != nil {
				return "", err
			}
		}
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return "", err
		}
		version = info.Main.Version
	}
	return version, nil
}

// binary returns the path of a platform's binary.
func (r release) binary(work string, p platform) string {
	name := r.name
	if p.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(work, p.String(), name)
}

// assemble writes the archives of the binaries in work, and all that goes beside them, to out.
func (r release) assemble(ctx context.Context, s source, work, out, version string) error {
	common, err := r.commonFiles(ctx, s, work)
	if err != nil {
		return err
	}
	var artifacts []artifact
	add := func(name string, content []byte, of platform) error {
		artifacts = append(artifacts, artifact{name, sha256.Sum256(content), of})
		fmt.Fprintf(r.log, "writing %s, %d bytes\n", name, len(content))
		if err := os.WriteFile(filepath.Join(out, name), content, 0o644); err != nil {
			return err
		}
		return r.sign(out, name, version, content)
	}
	var archives []artifact
	for _, p := range r.platforms {
		base := fmt.Sprintf("%s_%s_%s", r.name, strings.TrimPrefix(version, "v"), p)
		name, content, err := r.archive(base, r.binary(work, p), common, s.time, p)
		if err != nil {
			return err
		}
		if err := add(name, content, p); err != nil {
			return err
		}
		archives = append(archives, artifacts[len(artifacts)-1])
		if content, err = r.materials(ctx, r.repository, r.binary(work, p)); err != nil {
			return fmt.Errorf("the bill of materials for %s: %w", p, err)
		}
		if err := add(base+".cdx.json", content, p); err != nil {
			return err
		}
	}
	if r.formula {
		text, err := formula(r.name, version, archives)
		if err != nil {
			return err
		}
		if err := add(r.name+".rb", text, platform{}); err != nil {
			return err
		}
	}
	var sums strings.Builder
	for _, a := range artifacts {
		fmt.Fprintf(&sums, "%x  %s\n", a.sha256, a.name)
	}
	return add("SHA256SUMS", []byte(sums.String()), platform{})
}

// sign writes the signature of a file beside it, where there is a key. The trusted comment, which is signed too, says
// which file of which version it is, so that an old file cannot pass for a new one.
func (r release) sign(out, name, version string, content []byte) error {
	if r.key == nil {
		return nil
	}
	text, err := r.key.Sign(content, "signature of a release of "+r.name,
		fmt.Sprintf("%s %s file:%s", r.name, version, name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name+".minisig"), text, 0o644)
}

// commonFiles returns the files that every archive has beside the binary.
func (r release) commonFiles(ctx context.Context, s source, work string) ([]file, error) {
	var files []file
	for _, name := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		content, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, content, 0o644})
	}
	notices, err := r.notices(ctx, s, work)
	if err != nil {
		return nil, err
	}
	files = append(files, file{"THIRD_PARTY_LICENSES", notices, 0o644})
	if !r.manual {
		return files, nil
	}
	for _, p := range r.platforms {
		if p.os != runtime.GOOS || p.arch != runtime.GOARCH {
			continue
		}
		page, err := exec.CommandContext(ctx, r.binary(work, p), "man").Output()
		if err != nil {
			return nil, fmt.Errorf("%s man: %w", r.name, err)
		}
		return append(files, file{r.name + ".1", page, 0o644}), nil
	}
	return nil, fmt.Errorf("the manual page comes from the binary of %s/%s, which is not among the platforms: make "+
		"the release on one that is",
		runtime.GOOS, runtime.GOARCH)
}
