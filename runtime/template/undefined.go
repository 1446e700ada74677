package template

// undefined is jinja2's Undefined: the value of a name, attribute or item that is not there. It prints as
// nothing, is false and empty; everything else that is done with it is an error.
type undefined struct {
	// hint is the whole message, if not empty.
	hint string
	// object is what has no attribute or item of this name; nil for a variable.
	object Value
	name   Value
	kind   Kind
}

// TypeName implements Value.
func (*undefined) TypeName() string { return "Undefined" }

func undefinedName(name string) *undefined {
	return &undefined{name: Str(name), kind: UndefinedError}
}

func undefinedHint(hint string) *undefined {
	return &undefined{hint: hint, kind: UndefinedError}
}

// undefinedItem returns the value of an attribute or item that object does not have.
func undefinedItem(object, name Value) *undefined {
	return &undefined{object: object, name: name, kind: UndefinedError}
}

// unsafeAttribute returns the value of an attribute that the sandbox hides.
func unsafeAttribute(object Value, name string) *undefined {
	return &undefined{
		hint: "access to attribute " + quote(name) + " of '" + object.TypeName() + "' object is unsafe.",
		kind: SecurityError,
	}
}

// failUndefined ends the evaluation because of an operation on an undefined value.
func (in *interp) failUndefined(u *undefined) {
	in.fail(u.kind, "%s", in.undefinedMessage(u))
}

func (in *interp) undefinedMessage(u *undefined) string {
	if u.hint != "" {
		return u.hint
	}
	if u.object == nil {
		return in.repr(u.name) + " is undefined"
	}
	object := u.object.TypeName() + " object"
	switch u.object.(type) {
	case None:
		object = "None"
	case *namespace, *cycler, *joiner:
		object = "jinja2.utils." + object
	}
	if name, ok := asString(u.name); ok {
		return quote(object) + " has no attribute " + quote(name)
	}
	return object + " has no element " + in.repr(u.name)
}

// checkDefined fails if one of the values is undefined.
func (in *interp) checkDefined(values ...Value) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			in.failUndefined(u)
		}
	}
}
