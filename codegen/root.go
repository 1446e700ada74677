package codegen

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"github.com/etc-ml/etc/internal/fault"
)

// RootPiece is the size of the pieces of a file whose hashes make its root hash.
const RootPiece = 4 << 20

// RootHash is one hash for all bytes of a file that several workers compute: the SHA-256 of a text with the
// SHA-256 of every piece of 4 MiB (the last may be shorter) in hexadecimal, a line each. coreutils give the same:
//
//	split -b 4M --filter=sha256sum FILE | cut -c 1-64 | sha256sum
//
// The size has to be known with it: pieces are told from their list by it. jobs is the number of workers, 0 for
// one per CPU.
func RootHash(ctx context.Context, r io.ReaderAt, size int64, jobs int) (string, error) {
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	const line = 2*sha256.Size + 1
	pieces := (size + RootPiece - 1) / RootPiece
	list := make([]byte, pieces*line)
	var next atomic.Int64
	var wait fault.Group
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range min(int64(jobs), pieces) {
		wait.Go(func() {
			buffer := make([]byte, min(RootPiece, size))
			for i := next.Add(1) - 1; i < pieces && ctx.Err() == nil; i = next.Add(1) - 1 {
				p := buffer[:min(RootPiece, size-i*RootPiece)]
				if n, err := r.ReadAt(p, i*RootPiece); n < len(p) {
					if err == nil || err == io.EOF {
						err = io.ErrUnexpectedEOF
					}
					cancel(fmt.Errorf("byte %d: %w", i*RootPiece+int64(n), err))
					return
				}
				sum := sha256.Sum256(p)
				hex.Encode(list[i*line:], sum[:])
				list[i*line+line-1] = '\n'
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	root := sha256.Sum256(list)
	return hex.EncodeToString(root[:]), nil
}
