package schema

import (
	"encoding/binary"
	"fmt"
)

// ExtendedHeader is the second header of a .pte file. It sits between the file identifier and the tables of
// the program and says where the program ends and where the segments begin (ExecuTorch,
// schema/extended_header.h). On disk, little endian:
//
//	 0  root offset of the program       u32
//	 4  "ET12"
//	 8  "eh00"
//	12  length of the header from "eh00"  u32, at least 24
//	16  ProgramSize                      u64
//	24  SegmentBase                      u64
//	32  SegmentSize                      u64, since length 32
type ExtendedHeader struct {
	ProgramSize uint64 // bytes of the program, from the start of the file, this header included
	SegmentBase uint64 // offset that the offsets of segments count from; 0 without segments
	SegmentSize uint64 // bytes from SegmentBase to the end of the last segment; 0 in files of old exporters
}

const (
	extendedHeaderOffset = 8
	extendedHeaderMagic  = "eh00"
	extendedHeaderOld    = 24 // length without SegmentSize
	extendedHeaderLength = 32
)

// ReadExtendedHeader reads the header from the first bytes of a file; it needs 40 of them. It returns nil where the
// file has no header: the program then is the whole file and has no segments.
func ReadExtendedHeader(file []byte) (*ExtendedHeader, error) {
	if len(file) < extendedHeaderOffset+extendedHeaderLength {
		return nil, fmt.Errorf("%d bytes are too few for a program", len(file))
	}
	header := file[extendedHeaderOffset:]
	if string(header[:4]) != extendedHeaderMagic {
		return nil, nil
	}
	length := binary.LittleEndian.Uint32(header[4:])
	if length < extendedHeaderOld {
		return nil, fmt.Errorf("extended header of %d bytes, expected at least %d", length, extendedHeaderOld)
	}
	h := &ExtendedHeader{
		ProgramSize: binary.LittleEndian.Uint64(header[8:]),
		SegmentBase: binary.LittleEndian.Uint64(header[16:]),
	}
	if length >= extendedHeaderLength {
		h.SegmentSize = binary.LittleEndian.Uint64(header[24:])
	}
	return h, nil
}

// WithExtendedHeader returns a finished program with the header inserted, and the header with its ProgramSize
// set. base returns the SegmentBase for a program of that many bytes, which is the place to align it. The
// header's 32 bytes keep the alignment of everything after it.
func WithExtendedHeader(program []byte, segmentSize uint64, base func(programSize uint64) uint64) ([]byte,
	ExtendedHeader) {
	h := ExtendedHeader{ProgramSize: uint64(len(program)) + extendedHeaderLength, SegmentSize: segmentSize}
	h.SegmentBase = base(h.ProgramSize)
	out := make([]byte, 0, h.ProgramSize)
	out = binary.LittleEndian.AppendUint32(out, binary.LittleEndian.Uint32(program)+extendedHeaderLength)
	out = append(out, program[4:extendedHeaderOffset]...)
	out = append(out, extendedHeaderMagic...)
	out = binary.LittleEndian.AppendUint32(out, extendedHeaderLength)
	out = binary.LittleEndian.AppendUint64(out, h.ProgramSize)
	out = binary.LittleEndian.AppendUint64(out, h.SegmentBase)
	out = binary.LittleEndian.AppendUint64(out, h.SegmentSize)
	return append(out, program[extendedHeaderOffset:]...), h
}

// The payload of the MLX delegate: a header and a graph (ExecuTorch, backends/mlx/runtime/MLXLoader.cpp).
//
//	 0  anything (zeros)
//	 4  "MLX0"
//	 8  end of the graph, from the start of the payload  u64
//	16  bytes of data after the graph (0)               u64
//	24  the graph
const (
	MLXHeaderSize   = 24 // bytes before the graph
	mlxMagic        = "MLX0"
	mlxPayloadAlign = 16
)

// MLXPayload returns a graph with the header before it, padded to 16 bytes.
func MLXPayload(graph []byte) []byte {
	end := (MLXHeaderSize + len(graph) + mlxPayloadAlign - 1) / mlxPayloadAlign * mlxPayloadAlign
	out := make([]byte, end)
	copy(out[4:], mlxMagic)
	binary.LittleEndian.PutUint64(out[8:], uint64(end))
	copy(out[MLXHeaderSize:], graph)
	return out
}

// MLXGraphBytes returns the graph of a payload, which it does not copy.
func MLXGraphBytes(payload []byte) ([]byte, error) {
	if len(payload) < MLXHeaderSize {
		return nil, fmt.Errorf("%d bytes are too few for the header of an MLX payload", len(payload))
	}
	if magic := payload[4:8]; string(magic) != mlxMagic {
		return nil, fmt.Errorf("magic %q, expected %q", magic, mlxMagic)
	}
	end := binary.LittleEndian.Uint64(payload[8:])
	if end <= MLXHeaderSize || end > uint64(len(payload)) {
		return nil, fmt.Errorf("graph ends at %d, expected more than %d and at most %d", end,
			MLXHeaderSize, len(payload))
	}
	return payload[MLXHeaderSize:end], nil
}
