package command

import (
	"io"
	"os"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/program"
)

// readStored lets a module that is bound to a program read its constants by position from the program's file,
// and not from the file's mapping, whose pages would count as the export's memory. The caller closes the file.
func readStored(p *program.Program, m *ir.Module, path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	segments := map[string]int{}
	for _, n := range p.File.NamedData() {
		if _, twice := segments[n.Key]; !twice {
			segments[n.Key] = n.Segment
		}
	}
	for _, c := range m.Constants {
		if n, ok := segments[c.Name]; ok {
			s := p.File.Segments()[n]
			c.Data = stored{c.Data, io.NewSectionReader(f, s.Offset, s.Size)}
		}
	}
	return f, nil
}

// stored is a constant that is read by position.
type stored struct {
	ir.Data
	at io.ReaderAt
}

func (s stored) ReadAt(p []byte, off int64) (int, error) { return s.at.ReadAt(p, off) }
