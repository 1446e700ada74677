package ir

import "fmt"

// bufferType returns the type of the operation's buffer.
func (c *Inference) bufferType() (Type, error) {
	if c.Op.Buffer == nil {
		return Type{}, fmt.Errorf("needs a buffer")
	}
	return c.Op.Buffer.Type, nil
}

// inferLoad infers the type of load, the buffer's type.
func inferLoad(c *Inference) ([]Type, error) {
	t, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	return single(t)
}

// inferStore infers the types of the results of store, which are none. x replaces the buffer; nothing is converted or
// broadcast.
func inferStore(c *Inference) ([]Type, error) {
	t, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	return nil, sameType("x", c.Type("x"), t)
}

// inferBufferSliceUpdate is slice_update in place.
func inferBufferSliceUpdate(c *Inference) ([]Type, error) {
	t, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	return nil, c.checkSliceUpdate(t, c.Type("update"))
}

// inferBufferIndexCopy is index_copy in place.
func inferBufferIndexCopy(c *Inference) ([]Type, error) {
	t, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	return nil, c.checkIndexCopy(t, c.Type("update"))
}

// inferUndef keeps the type that its result was made with.
func inferUndef(c *Inference) ([]Type, error) {
	if len(c.Op.Results) != 1 {
		return nil, fmt.Errorf("needs a result with a type, found %d results", len(c.Op.Results))
	}
	t := c.Op.Results[0].Type
	if t.Kind == IntKind && t.Int == nil {
		return nil, fmt.Errorf("needs a result with a type, found an int without an expression")
	}
	return single(t)
}
