package kernels

import "sync"

// remembered caches values by key. The layers of a model are alike, and each asks for the variants of the same
// products, some hundred to a product. There are as many keys as models have different products.
type remembered[K comparable, V any] struct {
	mu   sync.Mutex
	made map[K]V
}

// of returns the value of a key. make computes it on first use. Callers must not change it.
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
