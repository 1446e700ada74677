package command

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache/disk"
)

// prefixes opens the folder of --prefix-dir for a file. It returns nil where the flag is not given and, with a line in
// the log, where the program runs one sequence after the other, or another server has the folder.
func (s *servedFile) prefixes(x batch.Executor) (*disk.Folder, error) {
	if s.flags.prefixDir == "" {
		return nil, nil
	}
	if !batch.UsesDisk(x) {
		s.log("etc: %s: its caches cannot be copied, so none of them are kept in --prefix-dir", s.Path)
		return nil, nil
	}
	limit, err := s.flags.prefixLimit()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.flags.prefixDir, strings.TrimSuffix(filepath.Base(s.Path), ".pte")+".prefixes")
	folder, err := disk.Open(dir, disk.Options{Limit: limit,
		Failed: func(err error) { s.log("etc: a part of the prefix cache is not kept: %v", err) }})
	if errors.Is(err, outfile.ErrLocked) {
		s.log("etc: %s: another server has it, so no prefixes are kept", dir)
		return nil, nil
	}
	return folder, err
}
