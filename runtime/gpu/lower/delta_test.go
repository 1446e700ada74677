package lower_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// deltaRule is a gated delta rule behind the normalization of its keys and queries, and its gates.
const deltaRule = `module {
  symbol T [1, 64]
  constant @q : f32[32]
  constant @k : f32[32]
  constant @bias : f32[4]
  constant @rate : f32[4]
  buffer @s : f32[1,4,32,32]
  entry forward(%qx: f32[1,T,2,32], %kx: f32[1,T,2,32], %v: f32[1,T,4,32], %d: f32[1,T,4], %u: f32[1,T,4], %reset: bool[]) {
    %0 = rms_norm(x=%qx, weight=@q) {eps=1e-06} : f32[1,T,2,32]
    %1 = rms_norm(x=%kx, weight=@k) {eps=1e-06} : f32[1,T,2,32]
    %2 = delta_decay(x=%d, bias=@bias, rate=@rate) : f32[1,T,4]
    %3 = sigmoid(x=%u) : f32[1,T,4]
    %4 = buffer_delta_rule @s(q=%0, k=%1, v=%v, g=%2, beta=%3, reset=%reset) : f32[1,T,4,32]
    return RESULTS
  }
}
`

func TestDeltaRows(t *testing.T) {
	const result = "%4: f32[1,T,4,32]"
	both := []string{"rms_norm", "rms_norm"}
	for name, c := range map[string]struct {
		old, by string
		results string
		tokens  int
		refused []string
		want    []string
		holds   string
	}{
		"a token": {tokens: 1, want: []string{"delta_step"},
			holds: "{norm=true, eps=1e-06, gates=true, early=true}"},
		"several tokens": {tokens: 8, want: []string{"delta_step"}, holds: "gates=true"},
		"a chunk":        {tokens: 9, want: append(both[:2:2], "delta_gates", "delta_chunks")},
		"a chunk by steps": {tokens: 9, refused: []string{"delta_scan"},
			want: append(both[:2:2], "delta_gates", "delta_step"), holds: "{early=true}"},
		"gates that nothing": {tokens: 9, refused: []string{"delta_gates"},
			want: append(both[:2:2], "delta_decay", "sigmoid", "delta_chunks")},
		"two eps": {old: "weight=@k) {eps=1e-06}", by: "weight=@k) {eps=1e-05}", tokens: 1,
			want: append(both[:2:2], "delta_step"), holds: "{gates=true, early=true}"},
		"keys of others": {results: ", %1: f32[1,T,2,32]", tokens: 1, want: append(both[:2:2], "delta_step"),
			holds: "{gates=true, early=true}"},
		"decays of others": {results: ", %2: f32[1,T,4]", tokens: 1, want: []string{"delta_decay", "delta_step"},
			holds: "norm=true"},
		"no sigmoid": {old: "beta=%3", by: "beta=%u", tokens: 1, want: []string{"delta_decay", "delta_step"},
			holds: "{norm=true, eps=1e-06, early=true}"},
		"no kernel": {tokens: 1, refused: []string{"delta_step"},
			want: append(both[:2:2], "delta_decay", "sigmoid", "buffer_delta_rule")},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(deltaRule, "RESULTS", result+c.results, 1)
			if c.old != "" {
				require.Contains(t, text, c.old)
				text = strings.Replace(text, c.old, c.by, 1)
			}
			lines := lowered(t, text, c.tokens, &lower.Target{Machine: kernels.Machine{Target: kernels.CUDA},
				Refuses: refuses(c.refused...)})
			require.Equal(t, c.want, names(lines), strings.Join(lines, "\n"))
			require.Contains(t, strings.Join(lines, "\n"), c.holds)
		})
	}
}

// slotRule is the rule of deltaRule in a call of several sequences.
var slotRule = strings.NewReplacer("@s : f32[1,4,32,32]", "@s : f32[9,4,32,32]", "%reset: bool[]",
	"%entries: i32[6,3], %writes: i32[T]",
	"buffer_delta_rule", "slot_delta_rule", "reset=%reset", "entries=%entries, writes=%writes").Replace(deltaRule)

func TestSlotDeltaRows(t *testing.T) {
	both := []string{"rms_norm", "rms_norm"}
	for name, c := range map[string]struct {
		old, by string
		tokens  int
		refused []string
		want    []string
		holds   string
	}{
		"a row": {tokens: 1, want: []string{"slot_delta_step"},
			holds: "{norm=true, eps=1e-06, gates=true, early=true}"},
		"several rows": {tokens: 32, want: []string{"slot_delta_step"}, holds: "gates=true"},
		"many rows":    {tokens: 33, want: append(both[:2:2], "delta_gates", "slot_delta_chunks")},
		"logits of all rows, of as many sequences": {old: "%entries: i32[6,3]", by: "%wanted: i32[T], %entries: i32[32,3]",
			tokens: 64, want: []string{"slot_delta_step"}, holds: "gates=true"},
		"logits of all rows, of few sequences": {old: "%entries: i32[6,3]", by: "%wanted: i32[T], %entries: i32[31,3]",
			tokens: 64, want: append(both[:2:2], "delta_gates", "slot_delta_chunks")},
		"logits of some rows": {old: "%entries: i32[6,3]", by: "%wanted: i32[63], %entries: i32[32,3]",
			tokens: 64, want: append(both[:2:2], "delta_gates", "slot_delta_chunks")},
		"many, by steps": {tokens: 33, refused: []string{"slot_delta_scan"},
			want: []string{"delta_gates", "slot_delta_step"}, holds: "{norm=true, eps=1e-06, early=true}"},
		"a rounded state": {old: "@s : f32", by: "@s : bf16", tokens: 40,
			want: []string{"delta_gates", "slot_delta_step"}, holds: "norm=true"},
		"no kernel": {tokens: 33, refused: []string{"slot_delta"},
			want: append(both[:2:2], "delta_gates", "slot_delta_rule")},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(slotRule, "RESULTS", "%4: f32[1,T,4,32]", 1)
			if c.old != "" {
				require.Contains(t, text, c.old)
				text = strings.Replace(text, c.old, c.by, 1)
			}
			target := &lower.Target{Machine: kernels.Machine{Target: kernels.CUDA}, Refuses: refuses(c.refused...),
				Precision: eval.Mixed}
			lines := lowered(t, text, c.tokens, target)
			require.Equal(t, c.want, names(lines), strings.Join(lines, "\n"))
			require.Contains(t, strings.Join(lines, "\n"), c.holds)
		})
	}
}
