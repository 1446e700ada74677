//go:build !unix && !windows

package container

import (
	"io"
	"os"
)

// mapFile reads size bytes of a file where there is nothing to map it with.
func mapFile(file *os.File, size int) (data []byte, release func() error, err error) {
	data = make([]byte, size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}
