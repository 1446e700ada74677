package schema

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema/program"
)

func TestExtendedHeader(t *testing.T) {
	plain := mustMarshal(t, Program(), sampleProgram())
	h, err := ReadExtendedHeader(plain)
	require.NoError(t, err)
	require.Nil(t, h)

	file, written := WithExtendedHeader(plain, 100,
		func(programSize uint64) uint64 { return (programSize + 1023) &^ 1023 })
	require.Equal(t, ExtendedHeader{ProgramSize: uint64(len(plain)) + 32,
		SegmentBase: 1024 * ((uint64(len(plain)) + 32 + 1023) / 1024), SegmentSize: 100}, written)
	require.Len(t, file, int(written.ProgramSize))
	require.Equal(t, "ET12eh00\x20\x00\x00\x00", string(file[4:16]))
	require.NoError(t, Verify(Program(), file, "ET12"))
	require.Equal(t, "forward", string(program.GetRootAsProgram(file, 0).UnPack().ExecutionPlan[0].Name))
	h, err = ReadExtendedHeader(file)
	require.NoError(t, err)
	require.Equal(t, &written, h)

	old := patched(file, 12, 24)
	h, err = ReadExtendedHeader(old)
	require.NoError(t, err)
	require.Equal(t, &ExtendedHeader{ProgramSize: written.ProgramSize, SegmentBase: written.SegmentBase}, h)

	_, err = ReadExtendedHeader(patched(file, 12, 23))
	require.ErrorContains(t, err, "extended header of 23 bytes, expected at least 24")
	_, err = ReadExtendedHeader(file[:39])
	require.ErrorContains(t, err, "39 bytes are too few")
}

func TestMLXPayload(t *testing.T) {
	graph := mustMarshal(t, MLXGraph(), sampleGraph())
	payload := MLXPayload(graph)
	require.Zero(t, len(payload)%16)
	got, err := MLXGraphBytes(payload)
	require.NoError(t, err)
	require.Equal(t, graph, got[:len(graph)])
	require.NoError(t, Verify(MLXGraph(), got, ""))

	for name, c := range map[string]struct {
		payload []byte
		want    string
	}{
		"short":     {payload[:23], "23 bytes are too few"},
		"magic":     {patched(payload, 4, 'm'), `magic "mLX0", expected "MLX0"`},
		"no graph":  {patched(payload, 8, 24, 0), "graph ends at 24, expected more than 24"},
		"truncated": {payload[:len(payload)-1], "and at most"},
		"far away":  {patched(payload, 15, 0x80), "and at most"},
	} {
		_, err := MLXGraphBytes(c.payload)
		require.ErrorContains(t, err, c.want, name)
	}
}
