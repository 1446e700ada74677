package template

// globals are the names that every template knows.
var globals map[string]Value

// dictClass is the global dict, whose method fromkeys may be called.
var dictClass *function

func init() {
	dictClass = &function{"dict", "dict", variadic(func(in *interp, _ Value, args callArgs) Value {
		return in.makeDict("dict", args)
	})}
	raise := define("message", func(in *interp, _ Value, a []Value) Value {
		in.fail(Raised, "%s", in.str(a[0]))
		return nil
	})
	now := define("format", func(in *interp, _ Value, a []Value) Value {
		format, ok := asString(a[0])
		if !ok {
			in.fail(TypeError, "strftime() argument 1 must be str, not %s", a[0].TypeName())
		}
		return Str(in.strftime(in.opts.Now(), format))
	})
	globals = map[string]Value{
		"dict":      dictClass,
		"range":     &function{"safe_range", "", variadic(makeRange)},
		"cycler":    &function{"cycler", "jinja2.utils.Cycler", variadic(makeCycler)},
		"joiner":    &function{"joiner", "jinja2.utils.Joiner", define("sep?", makeJoiner)},
		"namespace": &function{"namespace", "jinja2.utils.Namespace", variadic(makeNamespace)},
		"lipsum": &function{"generate_lorem_ipsum", "", variadic(func(in *interp, _ Value, _ callArgs) Value {
			in.fail(NotSupported, "lipsum is not supported: a prompt is not random")
			return nil
		})},
		"raise_exception": &function{"raise_exception", "", raise},
		"strftime_now":    &function{"strftime_now", "", now},
	}
}

// makeDict is dict(): of a mapping or of pairs, and of named arguments.
func (in *interp) makeDict(name string, args callArgs) *Dict {
	d := &Dict{}
	if len(args.positional) > 1 {
		in.fail(TypeError, "%s expected at most 1 argument, got %d", name, len(args.positional))
	}
	for _, v := range args.positional {
		switch v := v.(type) {
		case *Dict:
			in.alloc(96 * v.Len())
			d = v.Clone()
		case *undefined:
			in.failUndefined(v)
		case *namespace:
			in.fail(TypeError, "'Namespace' object is not iterable")
		default:
			next := in.iterate(v)
			for i := 0; ; i++ {
				pair, ok := next()
				if !ok {
					break
				}
				kv := in.tryIterate(pair)
				if kv == nil {
					in.fail(TypeError, "cannot convert dictionary update sequence element #%d to a sequence", i)
				}
				items := in.drain(kv)
				if len(items) != 2 {
					in.fail(ValueError, "dictionary update sequence element #%d has length %d; 2 is required", i,
						len(items))
				}
				in.insert(d, items[0], items[1])
			}
		}
	}
	for i, name := range args.names {
		in.insert(d, Str(name), args.named[i])
	}
	return d
}

func makeNamespace(in *interp, _ Value, args callArgs) Value {
	return &namespace{in.makeDict("namespace", args)}
}

func makeJoiner(_ *interp, _ Value, a []Value) Value {
	if a[0] == nil {
		return &joiner{separator: Str(", ")}
	}
	return &joiner{separator: a[0]}
}

func makeCycler(in *interp, _ Value, args callArgs) Value {
	in.noNames("cycler", args)
	if len(args.positional) == 0 {
		in.fail(RuntimeError, "at least one item has to be provided")
	}
	return &cycler{items: args.positional}
}

// makeRange is range(), which the sandbox bounds.
func makeRange(in *interp, _ Value, args callArgs) Value {
	in.noNames("range", args)
	n := len(args.positional)
	if n == 0 || n > 3 {
		in.fail(TypeError, "range expected 1 to 3 arguments, got %d", n)
	}
	bounds := make([]int64, n)
	for i, v := range args.positional {
		in.checkDefined(v)
		bounds[i] = int64(in.argInt(v))
	}
	r := rangeValue{0, bounds[0], 1}
	if n > 1 {
		r.start, r.stop = bounds[0], bounds[1]
	}
	if n > 2 {
		r.step = bounds[2]
	}
	const far = 1 << 59 // beyond it lengths and products overflow
	if r.step == 0 {
		in.fail(ValueError, "range() arg 3 must not be zero")
	}
	for _, b := range bounds {
		if b > far || b < -far {
			in.fail(OverflowError, "%d is too large for a range", b)
		}
	}
	if r.len() > maxRange {
		in.fail(OverflowError, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r
}
