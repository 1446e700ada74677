package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A file is what an archive holds.
type file struct {
	name    string
	content []byte
	mode    fs.FileMode
}

// archive packs a binary and the files beside it in a folder named base: a zip for Windows, else a tar.gz.
func (r release) archive(base, binary string, common []file, modified time.Time, p platform) (name string,
	content []byte, err error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return "", nil, err
	}
	files := append([]file{{filepath.Base(binary), program, 0o755}}, common...)
	for i := range files {
		files[i].name = base + "/" + files[i].name
	}
	if p.os == "windows" {
		content, err = packZip(files, modified)
		return base + ".zip", content, err
	}
	content, err = packTar(files, modified)
	return base + ".tar.gz", content, err
}

// packTar returns the same bytes for the same files: no owner, one time, no name or time in gzip's header.
func packTar(files []file, modified time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.content)), Mode: int64(f.mode),
			ModTime: modified, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := t.Write(f.content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// packZip returns the same bytes for the same files.
func packZip(files []file, modified time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(f.mode)
		w, err := z.CreateHeader(header)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// checkStatic finds out whether a binary for Linux needs a dynamic loader.
func checkStatic(binary string) error {
	f, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return fmt.Errorf("%s is to be static, and has a segment %s", binary, p.Type)
		}
	}
	return nil
}
