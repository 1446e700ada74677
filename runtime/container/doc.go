// Package container reads .pte files: the ExecuTorch program at the head of the file, its methods, the
// segments after it, and the payload of the MLX delegate.
//
// A file is mapped, never read as a whole: segments, named data, payloads and constants are views of the map
// and are valid until Close. They must not be written to; on most systems that is a fault.
//
// Whatever the bytes, Open and MLX return a file that can be used without a panic, or an error that names the
// file, the offset and the field and for which errors.Is(err, ErrInvalid) holds. They check all that can be
// checked without knowing what the operations do: every index that a value, an instruction, a slot or a chain
// holds is in range, every segment is in the file, every constant has exactly the bytes of its type and
// shape. ExecuTorch leaves some of that to luck.
//
// A file that another process shortens while it is mapped cannot be read any further: reading a view of what
// is gone is a memory fault, which only Open and MLX turn into an error.
//
// The package imports the schemas and nothing else of the project.
package container
