package plan

import "slices"

// Slot is a range of an arena: Size units that are in use from step First to step Last. [Place] sets Offset.
type Slot struct {
	Size, First, Last int
	Offset            int
}

// Never is the First of a slot that no step uses yet.
const Never = 1 << 30

// PlaceApart assigns every slot an offset of its own, one after the other, at multiples of alignment (a power of two).
// It returns the size of the arena. Slots that no step uses get no space.
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

// Place assigns every slot an offset, at multiples of alignment (a power of two), so that slots in use at the same time
// do not overlap. It returns the size of the arena. It takes slots in the order of their first steps, larger ones
// first, and gives each the lowest free offset. Slots that no step uses get no space.
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
