package builder

import "strings"

// languagePrefixes are the names under which checkpoints hold the language model: inside a multimodal
// model (transformers from 4.52 on, and before), or as a model of its own. lm_head stands beside it.
var languagePrefixes = []string{"model.language_model.", "language_model.model.", "language_model.", "model."}

// Head is the name of the matrix that makes logits. It stands beside the language model, not in it.
const Head = "lm_head.weight"

// The kinds of modules beside the language model, as [Tensors.Skipped] counts them.
const (
	Vision = "vision"
	Audio  = "audio"
	// MultiToken is multi-token prediction: extra layers that draft tokens.
	MultiToken = "mtp"
	// SharedKV are projections of keys and values of layers that attend to those of another layer.
	SharedKV = "shared keys and values"
)

// otherModules lists the modules that are skipped, by the beginnings of the names of their tensors
// after the prefix of the language model or of the whole model.
var otherModules = []struct {
	kind     string
	prefixes []string
}{
	{Vision, []string{"visual.", "vision_tower.", "vision_model.", "embed_vision.", "multi_modal_projector.",
		"vision_embedder.", "vision_adapter.", "vision_projection."}},
	{Audio, []string{"audio_tower.", "audio_model.", "embed_audio."}},
	{MultiToken, []string{"mtp.", "mtp_"}},
}

// splitName splits a tensor's name into the prefix of the language model, which may be empty, and the
// name inside of it.
func splitName(name string) (prefix, inner string) {
	for _, p := range languagePrefixes {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return p, rest
		}
	}
	return "", name
}

// otherModule returns the kind of the module beside the language model that a tensor belongs to.
func otherModule(inner string) (kind string, ok bool) {
	for _, m := range otherModules {
		for _, p := range m.prefixes {
			if strings.HasPrefix(inner, p) {
				return m.kind, true
			}
		}
	}
	return "", false
}

// Inner returns a tensor's or module's name in the language model, without the prefix that a checkpoint has.
func Inner(name string) string {
	_, inner := splitName(name)
	return inner
}
