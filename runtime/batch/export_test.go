package batch

// Choose is the host's draw.
func Choose(d Draw, logits []float32) int { return d.choose(logits) }

// ChooseAbove is the host's draw with min-p.
func ChooseAbove(d Draw, logits []float32, minP float32) int { return d.chooseAbove(logits, minP) }
