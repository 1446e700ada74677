package plan

import "slices"

// Slot is a piece of an arena: Size units that hold something from step First to step Last. [Place] sets Offset.
type Slot struct {
	Size, First, Last int
	Offset            int
}

// Never is the first step of a slot that nothing fills yet.
const Never = 1 << 30

// PlaceApart gives every slot a place of its own, one after the other, at multiples of alignment (a power of two), and
// gives the size of the arena. Slots that nothing fills have none.
func PlaceApart(slots []*Slot, alignment int) (size int) {
	for _, s := range slots {
		if s.First == Never {
			continue
		}
		s.Offset = size
		size += (s.Size + alignment - 1) &^ (alignment - 1)
	}
	return size
}

// Place gives every slot its place, at multiples of alignment (a power of two), so that what lives at the same time
// does not overlap, and gives the size of the arena. Slots are placed in the order of their first steps, larger ones
// before smaller ones, each at the lowest place that is free. Slots that nothing fills have none.
func Place(slots []*Slot, alignment int) (size int) {
	order := slices.DeleteFunc(slices.Clone(slots), func(s *Slot) bool { return s.First == Never })
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
