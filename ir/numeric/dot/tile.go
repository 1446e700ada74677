package dot

// tileGeneric computes what tileProducts computes on every processor.
func tileGeneric(out, a, b Matrix) {
	for i := range tileRows {
		for j := range out.Cols {
			out.Values[i*out.Stride+j] = Product(a.Row(i), b.Row(j))
		}
	}
}
