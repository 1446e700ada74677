package gpu

import "github.com/etc-ml/etc/runtime/engine"

// Begun reports whether an instance has begun a call that was not asked for yet.
func Pending(i engine.Instance) bool { return i.(*instance).pending != nil }
