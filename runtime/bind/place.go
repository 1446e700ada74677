package bind

import "slices"

// Slot is a piece of an arena: Size units that hold something from step First to step Last. [Place] sets Offset.
type Slot struct {
	Size, First, Last int
	Offset            int
}

// Place gives every slot its place, at multiples of alignment (a power of two), so that what lives at the same time does
// not overlap, and gives the size of the arena. Slots are placed in the order of their first steps, larger ones before
// smaller ones, each at the lowest place that is free.
func Place(slots []*Slot, alignment int) (size int) {
	order := slices.Clone(slots)
	slices.SortStableFunc(order, func(a, b *Slot) int {
		if a.First != b.First {
			return a.First - b.First
		}
		return b.Size - a.Size
	})
	type span struct{ lo, hi int }
	for i, s := range order {
		var taken []span
		for _, o := range order[:i] {
			if o.Last >= s.First && o.Size > 0 {
				taken = append(taken, span{o.Offset, o.Offset + o.Size})
			}
		}
		slices.SortFunc(taken, func(a, b span) int { return a.lo - b.lo })
		s.Offset = 0
		for _, t := range taken {
			if t.lo >= s.Offset+s.Size {
				break
			}
			s.Offset = max(s.Offset, (t.hi+alignment-1)&^(alignment-1))
		}
		size = max(size, s.Offset+s.Size)
	}
	return size
}
