package schema

import (
	"fmt"
	"reflect"

	flatbuffers "github.com/google/flatbuffers/go"
)

// Packer is a root table of the object API: *program.ProgramT or *mlxgraph.MLXGraphT.
type Packer interface {
	Pack(*flatbuffers.Builder) flatbuffers.UOffsetT
}

// Marshal writes a root table, finished with the schema's file identifier where it has one.
//
// The generated Pack writes nonsense, or panics, where a vector holds nil or a union's value is not of its
// type, and writes buffers without required fields; Marshal returns an error that names the place. It also
// refuses what Verify refuses. Tables with force_align must be written by hand with CreateAlignedBytes, since
// Pack aligns every byte vector to 4.
func Marshal(schema *Schema, root Packer) (buf []byte, err error) {
	if err := checkTree(reflect.ValueOf(root), ""); err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil { // the builder's answer to more than 2 GiB
			err = fmt.Errorf("flatbuffers: %v", r)
		}
	}()
	builder := flatbuffers.NewBuilder(1 << 12)
	if at := root.Pack(builder); schema.identifier != "" {
		builder.FinishWithFileIdentifier(at, []byte(schema.identifier))
	} else {
		builder.Finish(at)
	}
	buf = builder.FinishedBytes()
	if err := Verify(schema, buf, schema.identifier); err != nil {
		return nil, err
	}
	return buf, nil
}

// CreateAlignedBytes writes a byte vector whose content starts at a multiple of align (a power of two) bytes
// from the start of the finished buffer, as force_align demands of Buffer.storage and of
// BackendDelegateInlineData.data (16). The generated Start…Vector functions and CreateByteVector ignore that.
func CreateAlignedBytes(builder *flatbuffers.Builder, content []byte, align int) flatbuffers.UOffsetT {
	builder.StartVector(1, len(content), align)
	builder.Pad(len(content))
	copy(builder.Bytes[builder.Head():], content)
	return builder.EndVector(len(content))
}

// checkTree looks for what Pack takes in silence: nil elements of vectors, and unions whose value is missing
// or not of the type that their tag names.
func checkTree(v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil // an absent field; Verify knows the required ones
		}
		return checkTree(v.Elem(), path)
	case reflect.Slice:
		for i := range v.Len() {
			element := v.Index(i)
			if element.Kind() != reflect.Pointer {
				return nil // scalars or strings
			}
			at := fmt.Sprintf("%s[%d]", path, i)
			if element.IsNil() {
				return fmt.Errorf("%s is nil: a vector has no absent elements", at)
			}
			if err := checkTree(element, at); err != nil {
				return err
			}
		}
	case reflect.Struct:
		if value := v.FieldByName("Value"); value.IsValid() && value.Kind() == reflect.Interface {
			return checkUnion(v, value.Elem(), path)
		}
		for i := range v.NumField() {
			at := v.Type().Field(i).Name
			if path != "" {
				at = path + "." + at
			}
			if err := checkTree(v.Field(i), at); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkUnion checks a union of the object API: a struct of Type, an enum with a String method, and Value,
// which must be a pointer to the struct of that name with a T behind it.
func checkUnion(v, value reflect.Value, path string) error {
	tag := v.FieldByName("Type")
	if !value.IsValid() && tag.IsZero() {
		return nil
	}
	if !value.IsValid() || value.Kind() != reflect.Pointer || value.IsNil() {
		return fmt.Errorf("%s is of type %v but has no value", path, tag)
	}
	if name := value.Elem().Type().Name(); name != fmt.Sprint(tag)+"T" {
		return fmt.Errorf("%s is of type %v but its value is a %s", path, tag, name)
	}
	return checkTree(value, path)
}
