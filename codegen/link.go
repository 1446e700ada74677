package codegen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/etc-ml/etc/internal/outfile"
)

// Link puts the parts of a file, in any order, together under path: the bytes that [Write] gives. A [PartError]
// names a part that is damaged, missing, there twice, or of another file. jobs is the number of workers, 0 for one
// per CPU; place is as [File.Target], and the parts are inputs. What is said of interruption in [Write] goes for
// linking too.
func Link(ctx context.Context, path string, parts []string, jobs int, place outfile.Options) (err error) {
	place.Inputs = append(slices.Clone(parts), place.Inputs...)
	if err := outfile.Check(path, place); err != nil { // before anything is read
		return err
	}
	var open []*partFile
	defer func() {
		for _, p := range open {
			err = errors.Join(err, p.Close())
		}
	}()
	for _, name := range parts {
		p, err := openPart(name)
		if err != nil {
			return err
		}
		open = append(open, p)
	}
	if len(open) == 0 {
		return errors.New("no parts to link")
	}
	if err := fitTogether(open); err != nil {
		return err
	}
	f := File{Jobs: jobs, Target: place}
	for _, p := range open {
		if err := p.check(ctx, f.Workers()); err != nil {
			return err
		}
	}
	var tasks []task
	for _, p := range open {
		tasks = append(tasks, p.tasks()...)
	}
	for i := range tasks {
		tasks[i].id = i
	}
	return write(ctx, path, f, image{size: open[0].header.Size, key: open[0].header.Plan, tasks: tasks})
}

// fitTogether checks that parts belong to one file, and that each is there exactly once.
func fitTogether(parts []*partFile) error {
	slices.SortStableFunc(parts, func(a, b *partFile) int { return cmp.Compare(a.header.Part, b.header.Part) })
	first := parts[0]
	for _, p := range parts[1:] {
		a, b := first.header, p.header
		if changes := changed(a.Identity, b.Identity); len(changes) > 0 {
			return &PartError{p.path, fmt.Sprintf("is of another export than %s: %s", first.path,
				strings.Join(changes, "; "))}
		}
		if a.Plan != b.Plan || a.Size != b.Size || a.Parts != b.Parts {
			return &PartError{p.path, fmt.Sprintf(
				"is of another export than %s: part %d of %d of a file of %d bytes with the plan %.12s, and not %d "+
					"of %d bytes with the plan %.12s",
				first.path, b.Part, b.Parts, b.Size, b.Plan, a.Parts, a.Size, a.Plan)}
		}
	}
	for i, p := range parts {
		if i > 0 && parts[i-1].header.Part == p.header.Part {
			return &PartError{p.path, fmt.Sprintf("is part %d of %d, as %s is", p.header.Part,
				p.header.Parts, parts[i-1].path)}
		}
	}
	there := map[int]bool{}
	for _, p := range parts {
		there[p.header.Part] = true
	}
	var missing []string
	const most = 8
	for i := 1; i <= first.header.Parts && len(missing) <= most; i++ {
		if !there[i] {
			missing = append(missing, fmt.Sprint(i))
		}
	}
	if len(missing) > most {
		missing = append(missing[:most], "and more")
	}
	if len(missing) > 0 {
		return &PartError{first.path, fmt.Sprintf("part %s of %d is missing",
			strings.Join(missing, ", "), first.header.Parts)}
	}
	type owned struct {
		extent
		part *partFile
	}
	var all []owned
	for _, p := range parts {
		for _, e := range p.header.Extents {
			all = append(all, owned{extent{e[0], e[1]}, p})
		}
	}
	slices.SortFunc(all, func(a, b owned) int { return cmp.Compare(a.offset, b.offset) })
	for i := 1; i < len(all); i++ {
		if before := all[i-1]; before.offset+before.size > all[i].offset {
			return &PartError{all[i].part.path,
				fmt.Sprintf("holds byte %d of the file, as %s does", all[i].offset, before.part.path)}
		}
	}
	return nil
}

// tasks copy the ranges of a part into the file.
func (p *partFile) tasks() []task {
	var tasks []task
	from := p.start
	for _, e := range p.header.Extents {
		for off := int64(0); off < e[1]; off += pieceSize {
			n, at, to := min(pieceSize, e[1]-off), from+off, e[0]+off
			tasks = append(tasks, task{group: &group{[]extent{{to, n}}}, size: n,
				run: func(_ context.Context, w *worker) error {
					if w.buffer == nil {
						w.buffer = make([]byte, pieceSize)
					}
					b := w.buffer[:n]
					if got, err := p.ReadAt(b, at); got < len(b) {
						if err == nil || err == io.EOF {
							err = io.ErrUnexpectedEOF
						}
						return fmt.Errorf("%s: byte %d: %w", p.path, at+int64(got), err)
					}
					return w.out.writeAt(b, to)
				}})
		}
		from += e[1]
	}
	return tasks
}
