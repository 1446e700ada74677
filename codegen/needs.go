package codegen

import (
	"context"
	"path/filepath"
	"runtime"
	"time"

	"github.com/etc-ml/etc/ir"
)

// Sized is a computation of a weight's bytes that knows how much memory it needs. For any other computation Memory
// counts pieceSize bytes for each worker.
type Sized interface {
	// WorkerBytes returns the memory that each worker needs.
	WorkerBytes() int64
	// SharedBytes returns the memory that all workers of the computation share.
	SharedBytes() int64
}

// Memory is the memory for writing a file, in bytes: an upper estimate of the resident size of the process.
type Memory struct {
	// Fixed is the part that does not depend on the number of workers: the program, its module, the runtime.
	Fixed int64
	// Worker is the memory that each further worker adds.
	Worker int64
}

// For returns the memory with a number of workers.
func (m Memory) For(jobs int) int64 { return m.Fixed + int64(jobs)*m.Worker }

// Jobs returns the largest number of workers, up to most, that a limit allows; 0 where it does not allow one.
func (m Memory) Jobs(limit int64, most int) int {
	if m.Worker <= 0 {
		return most
	}
	return int(min(max((limit-m.Fixed)/m.Worker, 0), int64(most)))
}

const (
	// processBytes is the memory of the process before it compiles: code, runtime, stacks.
	processBytes = 64 << 20
	// garbage is the factor for large short-lived memory: it is freed some time after it was used last.
	garbage = 2
	// copies is the number of times that the program and the record are in memory: built, encoded, and as garbage.
	copies = 4
	// hashBytes is the memory for computing a field of the record.
	hashBytes = 1 << 20
)

// Memory estimates the memory for writing the file.
func (l *Layout) Memory() Memory {
	held := int64(len(l.Program))
	piece, worker := int64(0), int64(0)
	var shared [2]int64 // the two largest: while some workers end one computation, others begin the next
	seen := map[string]bool{}
	for _, s := range l.segments {
		switch {
		case s.record != nil:
			held += s.size
			worker = max(worker, hashBytes)
		case s.data == nil:
			held += s.size
		default:
			j, joint := s.data.(ir.Joint)
			if !joint {
				piece = max(piece, min(pieceSize, s.size))
				continue
			}
			c, _ := j.Group()
			if seen[c.Provenance()] {
				continue
			}
			seen[c.Provenance()] = true
			if sized, ok := c.(Sized); ok {
				worker = max(worker, sized.WorkerBytes())
				if n := sized.SharedBytes(); n > shared[0] {
					shared = [2]int64{n, shared[0]}
				} else {
					shared[1] = max(shared[1], n)
				}
			} else {
				worker = max(worker, pieceSize)
			}
		}
	}
	return Memory{Fixed: processBytes + copies*held + garbage*(shared[0]+shared[1]), Worker: max(piece+worker, 1)}
}

// Disk returns the space that a file needs at path, and the free space there; free is negative where it is not known.
func (l *Layout) Disk(path string) (needed, free int64) {
	free, known := freeSpace(filepath.Dir(path))
	if !known {
		free = -1
	}
	return l.Size, free
}

// Work is an estimate of the work of writing a file, for the processor and for the disk.
type Work struct {
	// Read and Written are bytes. What is read twice, for the weights and for the record, counts once.
	Read, Written int64
	// Computing is the time that one worker would take for the computations and the record, scaled up from
	// Sampled bytes of the file that have been computed to find out.
	Computing time.Duration
	Sampled   int64
}

// sampleBytes bounds the bytes that are computed to estimate the time.
const sampleBytes = 8 << 20

// Estimate computes a small part of the file, writes nothing, and tells what all of it takes. It is long because it is
// one sequence of steps, each of which needs what those before it made.
func (l *Layout) Estimate(ctx context.Context, inputs []Input) (Work, error) {
	w := Work{Written: l.Size}
	for _, i := range inputs {
		w.Read += i.Size
	}
	computed := map[ir.Computation]int64{} // bytes
	var order []ir.Computation
	seen := map[string]ir.Computation{}
	fields := int64(0)
	var field *Field
	for _, s := range l.segments {
		if s.record != nil {
			for i, f := range s.record.Fields {
				fields += f.Work
				if f.Of != "" {
					continue
				}
				if f.Work <= sampleBytes && (field == nil || f.Work > field.Work) {
					field = &s.record.Fields[i]
				}
			}
		}
		fields += int64(len(s.hashes)) * s.size // the sources' hashes take as long a byte
		if j, ok := s.data.(ir.Joint); ok {
			c, _ := j.Group()
			if first := seen[c.Provenance()]; first != nil {
				c = first
			} else {
				seen[c.Provenance()] = c
				order = append(order, c)
			}
			computed[c] += s.size
		}
	}
	// The computation to sample is the largest that is small enough, so that what belongs to a whole of it, as a
	// search, is counted as often as it is done.
	var sample ir.Computation
	total := int64(0)
	for _, c := range order {
		total += computed[c]
		if n := computed[c]; sample == nil || n <= sampleBytes && n > computed[sample] ||
			computed[sample] > sampleBytes && n < computed[sample] {
			sample = c
		}
	}
	if sample != nil {
		// The first time reads from the disk, which is counted by itself.
		if _, _, err := timeSample(ctx, sample); err != nil {
			return w, err
		}
		took, n, err := timeSample(ctx, sample)
		if err != nil {
			return w, err
		}
		w.Sampled += n
		w.Computing += scale(took, total, n)
	}
	if field != nil {
		if _, err := field.Make(ctx); err != nil {
			return w, err
		}
		start := time.Now()
		if _, err := field.Make(ctx); err != nil {
			return w, err
		}
		w.Computing += scale(time.Since(start), fields, field.Work)
	}
	return w, nil
}

func scale(d time.Duration, to, from int64) time.Duration {
	return time.Duration(float64(d) * (float64(to) / float64(max(from, 1))))
}

// timeSample runs a computation, or of one that is larger than a sample some blocks, and gives the time and
// the bytes that have been computed.
func timeSample(ctx context.Context, c ir.Computation) (time.Duration, int64, error) {
	n := int64(0)
	emit := func(_ int, _ int64, p []byte) error {
		n += int64(len(p))
		return ctx.Err()
	}
	start := time.Now()
	blocked, ok := c.(ir.Blocked)
	if !ok {
		err := c.Produce(emit)
		return time.Since(start), n, err
	}
	for i := 0; i < blocked.Blocks() && n < sampleBytes; i++ {
		if err := blocked.ProduceBlock(i, emit); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(start), n, nil
}

// Workers returns the number of workers that write the file.
func (f File) Workers() int {
	if f.Jobs > 0 {
		return f.Jobs
	}
	return runtime.GOMAXPROCS(0)
}
