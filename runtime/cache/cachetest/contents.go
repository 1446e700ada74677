package cachetest

import "github.com/etc-ml/etc/runtime/cache"

// Contents is a copy of what units hold, in their order.
type Contents struct {
	blocks [][]cell
	slots  []uint64
}

// Take copies what units hold.
func (d *Device) Take(units []cache.Unit) Contents {
	var c Contents
	for _, u := range units {
		if u.Pool == d.Memory.Layout().SlotPool() {
			c.slots = append(c.slots, d.slots[u.ID])
			continue
		}
		c.blocks = append(c.blocks, append([]cell(nil), d.block(u)...))
	}
	return c
}

// Give writes what Take gave into units; those that are cache.None are left out.
func (d *Device) Give(units []cache.Unit, c Contents) {
	blocks, slots := 0, 0
	for _, u := range units {
		if u.Pool == d.Memory.Layout().SlotPool() {
			if u.ID != cache.None {
				d.slots[u.ID] = c.slots[slots]
			}
			slots++
			continue
		}
		if u.ID != cache.None {
			copy(d.block(u), c.blocks[blocks])
		}
		blocks++
	}
}
