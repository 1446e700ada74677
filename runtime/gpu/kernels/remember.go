package kernels

import "sync"

// remembered keeps what was made for a key. The layers of a model are alike, and every one of them asks for the ways to
// divide the same products, some hundred to a product. There are as many keys as models have products.
type remembered[K comparable, V any] struct {
	mu   sync.Mutex
	made map[K]V
}

// of gives what make makes for a key, which it does once. Callers must not change it.
func (r *remembered[K, V]) of(key K, make func() V) V {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.made[key]
	if !ok {
		if r.made == nil {
			r.made = map[K]V{}
		}
		v = make()
		r.made[key] = v
	}
	return v
}
