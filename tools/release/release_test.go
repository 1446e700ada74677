package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/minisign"
)

// throwAway is a private key for tests.
func throwAway() *minisign.PrivateKey {
	return &minisign.PrivateKey{ID: [8]byte{1, 2, 3},
		Key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))}
}

// repository makes a git repository of a program without imports, with the tags given, and gives its folder.
func repository(t *testing.T, tags ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example.com/tiny\n\ngo 1.26.0\n",
		"main.go":      "package main\n\nfunc main() {}\n",
		"README.md":    "# tiny\n",
		"CHANGELOG.md": "# Changes\n",
		"LICENSE":      "do what you like\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	commands := [][]string{{"init", "--quiet"}, {"add", "."}, {"commit", "--quiet", "-m", "first"}}
	for _, tag := range tags {
		commands = append(commands, []string{"tag", tag})
	}
	for _, args := range commands {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:06Z",
			"GIT_COMMITTER_DATE=2026-01-02T03:04:06Z",
			"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, text)
	}
	return dir
}

// tiny is a release of such a repository, for this machine and for Windows.
func tiny(dir string) release {
	return release{
		repository: dir, name: "tiny", pkg: ".", number: "1.2.3", key: throwAway(), log: io.Discard,
		platforms: []platform{{os: runtime.GOOS, arch: runtime.GOARCH}, {os: "windows", arch: "amd64"}},
		materials: func(_ context.Context, _, binary string) ([]byte, error) {
			info, err := buildinfo.ReadFile(binary)
			if err != nil {
				return nil, err
			}
			return []byte(info.Main.Path + " " + info.Main.Version + "\n"), nil
		},
	}
}

// contents are the files of a folder by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(text)
	}
	return files
}

func TestRelease(t *testing.T) {
	r := tiny(repository(t, "v1.2.3", "other"))
	first, second := filepath.Join(t.TempDir(), "dist"), filepath.Join(t.TempDir(), "dist")
	require.NoError(t, r.write(t.Context(), first))
	files := contents(t, first)

	here := fmt.Sprintf("tiny_1.2.3_%s_%s", runtime.GOOS, runtime.GOARCH)
	archive := here + ".tar.gz"
	if runtime.GOOS == "windows" {
		archive = here + ".zip"
	}
	want := map[string]bool{archive: true, here + ".cdx.json": true, "tiny_1.2.3_windows_amd64.zip": true,
		"tiny_1.2.3_windows_amd64.cdx.json": true, "SHA256SUMS": true}
	for name := range files {
		if !strings.HasSuffix(name, ".minisig") {
			require.True(t, want[name], name)
			delete(want, name)
		}
	}
	require.Empty(t, want)

	t.Run("checksums", func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(files["SHA256SUMS"]), "\n")
		require.NotEmpty(t, lines)
		for _, line := range lines {
			sum, name, ok := strings.Cut(line, "  ")
			require.True(t, ok, line)
			require.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte(files[name]))), sum, name)
		}
	})
	t.Run("signatures", func(t *testing.T) {
		signed := 0
		for name, text := range files {
			if strings.HasSuffix(name, ".minisig") {
				continue
			}
			signature := []byte(files[name+".minisig"])
			comment, err := r.key.Public().Verify([]byte(text), signature)
			require.NoError(t, err, name)
			require.Equal(t, "tiny v1.2.3 file:"+name, comment)
			_, err = r.key.Public().Verify([]byte(text+"x"), signature)
			require.Error(t, err, name)
			signed++
		}
		require.Equal(t, len(files), 2*signed)
	})
	t.Run("archive", func(t *testing.T) {
		inside := unzip(t, files["tiny_1.2.3_windows_amd64.zip"])
		require.Equal(t, "# tiny\n", inside["tiny_1.2.3_windows_amd64/README.md"])
		require.Contains(t, inside["tiny_1.2.3_windows_amd64/THIRD_PARTY_LICENSES"], "Go, LICENSE")
		info, err := buildinfo.Read(strings.NewReader(inside["tiny_1.2.3_windows_amd64/tiny.exe"]))
		require.NoError(t, err)
		require.Equal(t, "v1.2.3", info.Main.Version, "the toolchain stamps the tag")
		if runtime.GOOS != "windows" {
			inside = untar(t, files[archive])
			require.Equal(t, "do what you like\n", inside[here+"/LICENSE"])
			require.NotEmpty(t, inside[here+"/tiny"])
		}
	})
	t.Run("reproducible", func(t *testing.T) {
		// Another folder, and settings of the machine that must not matter.
		t.Setenv("GOFLAGS", "-buildvcs=false")
		t.Setenv("GOAMD64", "v2")
		require.NoError(t, r.write(t.Context(), second))
		require.Equal(t, files, contents(t, second))
	})
}

func TestSnapshot(t *testing.T) {
	r := tiny(repository(t))
	r.snapshot, r.key, r.platforms = true, nil, r.platforms[:1]
	out := filepath.Join(t.TempDir(), "dist")
	require.NoError(t, r.write(t.Context(), out))
	for name := range contents(t, out) {
		require.NotContains(t, name, ".minisig")
		if name != "SHA256SUMS" {
			require.Regexp(t, `^tiny_0\.0\.0-20260102030406-[0-9a-f]{12}_`, name)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, want string
		make       func(t *testing.T) (release, string)
	}{
		{"no tag", "HEAD must have the tag v1.2.3, the number in internal/version, and it has none",
			func(t *testing.T) (release, string) {
				return tiny(repository(t)), t.TempDir()
			}},
		{"another tag", "and it has v1.2.4", func(t *testing.T) (release, string) {
			return tiny(repository(t, "v1.2.4")), t.TempDir()
		}},
		{"changes", "changes that are not committed", func(t *testing.T) (release, string) {
			dir := repository(t, "v1.2.3")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("other"), 0o644))
			return tiny(dir), t.TempDir()
		}},
		{"a folder that is not empty", "is not empty", func(t *testing.T) (release, string) {
			out := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(out, "x"), nil, 0o644))
			return tiny(repository(t, "v1.2.3")), out
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, out := c.make(t)
			require.ErrorContains(t, r.write(t.Context(), out), c.want)
		})
	}
}

func TestReadKey(t *testing.T) {
	t.Setenv(keyVariable, "")
	key, err := readKey("")
	require.NoError(t, err)
	require.Nil(t, key)
	t.Setenv(keyVariable, "no key")
	_, err = readKey("")
	require.ErrorContains(t, err, "the private key of "+keyVariable)
	_, err = readKey(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFormula(t *testing.T) {
	archive := func(p platform, b byte) artifact {
		return artifact{name: "etc_1.2.3_" + p.String() + ".tar.gz", sha256: [32]byte{b}, of: p}
	}
	var archives []artifact
	for i, p := range platforms {
		archives = append(archives, archive(p, byte(i+1)))
	}
	text, err := formula("etc", "v1.2.3", archives)
	require.NoError(t, err)
	require.Contains(t, string(text), `version "1.2.3"`)
	require.Equal(t, 3, strings.Count(string(text), "url "))
	for _, a := range archives {
		if a.of.static || a.of.os == "windows" {
			require.NotContains(t, string(text), a.name)
			continue
		}
		require.Contains(t, string(text), fmt.Sprintf("url \"%s/releases/download/v1.2.3/%s\"\n      sha256 \"%x\"\n",
			home, a.name, a.sha256))
	}
	_, err = formula("etc", "v1.2.3", archives[1:])
	require.ErrorContains(t, err, "darwin_arm64")
}

func untar(t *testing.T, text string) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(text))
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = string(content)
	}
}

func unzip(t *testing.T, text string) map[string]string {
	t.Helper()
	z, err := zip.NewReader(strings.NewReader(text), int64(len(text)))
	require.NoError(t, err)
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files[f.Name] = string(content)
	}
	return files
}
