package cachetest

import (
	"fmt"

	"github.com/etc-ml/etc/runtime/cache"
)

// cell is what a layer pair keeps for a position: one word of the token, one of all before it.
type cell [2]uint64

const poison = 0xdeadbeefdeadbeef

// Device stores the contents of units.
type Device struct {
	Memory *cache.Memory
	blocks map[cache.Unit][]cell
	slots  map[int32]uint64
}

// NewDevice returns an empty device for the units of m.
func NewDevice(m *cache.Memory) *Device {
	return &Device{Memory: m, blocks: map[cache.Unit][]cell{}, slots: map[int32]uint64{}}
}

// Sequence is one entry of a call.
type Sequence struct {
	Tokens []int32 // of the rows
	Start  int
	Blocks []int32
	Rings  []cache.Span
	Reads  int32
	Writes []cache.State
}

// Of returns the entry of a table between Begin and End.
func Of(t *cache.Table, tokens []int32) Sequence {
	return Sequence{Tokens: tokens, Start: t.Pos(), Blocks: t.Blocks(), Rings: t.Rings(),
		Reads: t.Reads(), Writes: t.Writes()}
}

// Copy does the copies of a call, in order.
func (d *Device) Copy(copies []cache.Copy) {
	for _, c := range copies {
		from := d.block(cache.Unit{Pool: c.Pool, ID: c.From})
		copy(d.block(cache.Unit{Pool: c.Pool, ID: c.To}), from)
	}
}

func (d *Device) block(u cache.Unit) []cell {
	b := d.blocks[u]
	if b == nil {
		b = make([]cell, d.Memory.Layout().BlockRows)
		for i := range b {
			b[i] = cell{poison, poison}
		}
		d.blocks[u] = b
	}
	return b
}

// Poison overwrites all units that nobody holds.
func (d *Device) Poison() {
	for u, b := range d.blocks {
		if d.Memory.Holders(u) == 0 {
			for i := range b {
				b[i] = cell{poison, poison}
			}
		}
	}
	for id := range d.slots {
		if d.Memory.Holders(cache.Unit{Pool: d.Memory.Layout().SlotPool(), ID: id}) == 0 {
			d.slots[id] = poison
		}
	}
}

// Run computes the rows of a sequence and returns a hash for each. It is an error to write a unit that
// somebody else holds.
func (d *Device) Run(s Sequence) ([]uint64, error) {
	l := d.Memory.Layout()
	state := uint64(0)
	if l.SlotBytes > 0 && s.Start > 0 {
		var ok bool
		if state, ok = d.slots[s.Reads]; !ok {
			return nil, fmt.Errorf("position %d reads slot %d, which was never written", s.Start, s.Reads)
		}
	}
	var out []uint64
	for i, token := range s.Tokens {
		pos := s.Start + i
		if l.SlotBytes > 0 {
			state = mix(state, uint64(token), uint64(pos))
			if err := d.writeState(s.Writes, pos+1, state); err != nil {
				return nil, err
			}
		}
		h, err := d.row(s, pos, token, state)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

func (d *Device) writeState(writes []cache.State, pos int, state uint64) error {
	for _, w := range writes {
		if w.Pos != pos {
			continue
		}
		u := cache.Unit{Pool: d.Memory.Layout().SlotPool(), ID: w.Slot}
		if n := d.Memory.Holders(u); n != 1 {
			return fmt.Errorf("the state at %d is written to slot %d, which has %d holders", pos, w.Slot, n)
		}
		d.slots[w.Slot] = state
	}
	return nil
}

// row writes the two words of a position for every group of layers and reads those that attention sees.
func (d *Device) row(s Sequence, pos int, token int32, state uint64) (uint64, error) {
	l := d.Memory.Layout()
	h := state
	for word := range 2 {
		value := mix(h, uint64(token), uint64(pos))
		if l.BlockBytes > 0 {
			span := cache.Span{Blocks: s.Blocks}
			if err := d.write(cache.BlockPool, span, pos, word, value); err != nil {
				return 0, err
			}
			if err := d.read(&h, cache.BlockPool, span, 0, pos, word); err != nil {
				return 0, err
			}
		}
		for i, r := range l.Rings {
			p := l.RingPool(i)
			if err := d.write(p, s.Rings[i], pos, word, value); err != nil {
				return 0, err
			}
			if err := d.read(&h, p, s.Rings[i], max(0, pos-r.Window+1), pos, word); err != nil {
				return 0, err
			}
		}
	}
	return mix(h, uint64(token), uint64(pos)), nil
}

func (d *Device) at(p cache.Pool, s cache.Span, pos int) (cache.Unit, int, error) {
	rows := d.Memory.Layout().BlockRows
	i := pos/rows - s.First
	if i < 0 || i >= len(s.Blocks) {
		return cache.Unit{}, 0, fmt.Errorf("pool %d has blocks %d to %d, position %d is in block %d", p, s.First,
			s.First+len(s.Blocks), pos, pos/rows)
	}
	return cache.Unit{Pool: p, ID: s.Blocks[i]}, pos % rows, nil
}

func (d *Device) write(p cache.Pool, s cache.Span, pos, word int, value uint64) error {
	u, row, err := d.at(p, s, pos)
	if err != nil {
		return err
	}
	if n := d.Memory.Holders(u); n != 1 {
		return fmt.Errorf("position %d is written to block %d of pool %d, which has %d holders", pos, u.ID, p, n)
	}
	d.block(u)[row][word] = value
	return nil
}

func (d *Device) read(h *uint64, p cache.Pool, s cache.Span, from, to, word int) error {
	for pos := from; pos <= to; pos++ {
		u, row, err := d.at(p, s, pos)
		if err != nil {
			return err
		}
		*h = mix(*h, d.block(u)[row][word], uint64(pos))
	}
	return nil
}

// Alone returns the hash of each row of a sequence that has the device for itself, computed from the tokens.
func Alone(l cache.Layout, tokens []int32) []uint64 {
	s := Solo{Layout: l}
	var out []uint64
	for _, t := range tokens {
		out = append(out, s.Feed(t))
	}
	return out
}

// Solo is a sequence that has the device for itself.
type Solo struct {
	Layout cache.Layout
	words  []cell
	state  uint64
}

// Feed returns the hash of the row of the next token.
func (s *Solo) Feed(token int32) uint64 {
	pos := len(s.words)
	s.words = append(s.words, cell{})
	if s.Layout.SlotBytes > 0 {
		s.state = mix(s.state, uint64(token), uint64(pos))
	}
	h := s.state
	for word := range 2 {
		s.words[pos][word] = mix(h, uint64(token), uint64(pos))
		if s.Layout.BlockBytes > 0 {
			see(&h, s.words, 0, pos, word)
		}
		for _, r := range s.Layout.Rings {
			see(&h, s.words, max(0, pos-r.Window+1), pos, word)
		}
	}
	return mix(h, uint64(token), uint64(pos))
}

func see(h *uint64, words []cell, from, to, word int) {
	for pos := from; pos <= to; pos++ {
		*h = mix(*h, words[pos][word], uint64(pos))
	}
}

// mix is a hash of three words.
func mix(a, b, c uint64) uint64 {
	h := a*0x9e3779b97f4a7c15 ^ b*0xbf58476d1ce4e5b9 ^ (c+1)*0x94d049bb133111eb
	h ^= h >> 31
	h *= 0xd6e8feb86659fd93
	return h ^ h>>29
}

// Tier is a tier in memory, whose units have the contents of a device.
type Tier struct {
	Device *Device
	kept   map[cache.Key][]any
	Loads  int // how often Load was called
}

// NewTier returns an empty tier for units of d.
func NewTier(d *Device) *Tier { return &Tier{Device: d, kept: map[cache.Key][]any{}} }

// Has reports whether k was stored.
func (t *Tier) Has(k cache.Key) bool { return t.kept[k] != nil }

// Store copies the contents of the units.
func (t *Tier) Store(k cache.Key, units []cache.Unit) {
	kept := []any{}
	for _, u := range units {
		if u.Pool == t.Device.Memory.Layout().SlotPool() {
			kept = append(kept, t.Device.slots[u.ID])
		} else {
			kept = append(kept, append([]cell(nil), t.Device.block(u)...))
		}
	}
	t.kept[k] = kept
}

// Load fills the units.
func (t *Tier) Load(k cache.Key, units []cache.Unit) error {
	kept := t.kept[k]
	if len(kept) != len(units) {
		return fmt.Errorf("the tier has %d units under the key, %d are asked for", len(kept), len(units))
	}
	t.Loads++
	for i, u := range units {
		if s, ok := kept[i].(uint64); ok {
			t.Device.slots[u.ID] = s
		} else {
			copy(t.Device.block(u), kept[i].([]cell))
		}
	}
	return nil
}
