#include <algorithm>
#include <set>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/builtins.h"
#include "text/template/comparison.h"
#include "text/template/iteration.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {

std::string_view text_argument(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail(ErrorCode::invalid_argument, "{} must be str, not Undefined", what);
  if (!value.is(Kind::text)) fail(ErrorCode::invalid_argument, "{} must be str, not {}", what, type_name(value));
  return value.text().view();
}

Integer integer_argument(const Value& value, std::string_view what) {
  if (!value.is_integral()) fail(ErrorCode::invalid_argument, "{} must be int, not {}", what, type_name(value));
  return value.integer();
}

std::int64_t small_argument(const Value& value, std::string_view what) {
  const Integer wide = integer_argument(value, what);
  return static_cast<std::int64_t>(std::clamp<Integer>(wide, INT64_MIN, INT64_MAX));
}

namespace {
Value unsafe(const Value& object, std::string_view name) {
  return make_undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", utf8_excerpt(name), type_name(object)));
}

Value view(const Value& dict, DictViewObject::What what) {
  auto object = std::make_shared<DictViewObject>();
  object->what = what;
  object->dict = dict;
  object->depth = dict.depth() + 1;
  return Value::object(Kind::dict_view, std::move(object));
}

Value dict_attribute(const Value& self, std::string_view name) {
  static const std::set<std::string_view> mutators = {"clear", "pop", "popitem", "setdefault", "update"};
  if (mutators.count(name)) return unsafe(self, name);
  using What = DictViewObject::What;
  const auto viewing = [&](What what) {
    return make_function(std::string(name), [self, what](Interpreter&, Arguments& arguments) {
      arguments.bind("dict view", {}, 0);
      return view(self, what);
    });
  };
  if (name == "items") return viewing(What::items);
  if (name == "keys") return viewing(What::keys);
  if (name == "values") return viewing(What::values);
  if (name == "get")
    return make_function("get", [self](Interpreter&, Arguments& arguments) {
      const auto values = arguments.bind("get", {"key", "default"}, 1, false);
      const Value* found = self.dict().find(values[0]);
      return found ? *found : or_else(values[1], Value::none());
    });
  if (name == "copy")
    return make_function("copy", [self](Interpreter&, Arguments& arguments) {
      arguments.bind("copy", {}, 0);
      return make_dict(Dict(self.dict()));
    });
  if (name == "fromkeys") return get_attribute(global("dict"), Value::text("fromkeys"));
  return {};
}

Value sequence_attribute(const Value& self, std::string_view name) {
  static const std::set<std::string_view> mutators = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  if (self.is(Kind::list) && mutators.count(name)) return unsafe(self, name);
  if (name == "copy" && self.is(Kind::list))
    return make_function("copy", [self](Interpreter&, Arguments& arguments) {
      arguments.bind("copy", {}, 0);
      return make_list(List(self.items()));
    });
  if (name == "count")
    return make_function("count", [self](Interpreter&, Arguments& arguments) {
      const Value wanted = arguments.bind("count", {"value"}, 1, false)[0];
      Integer count = 0;
      Cursor cursor(self);
      for (Value item; cursor.next(item);) count += same_or_equal(item, wanted);
      return Value::of(count);
    });
  if (name == "index")
    return make_function("index", [self](Interpreter&, Arguments& arguments) {
      const auto values = arguments.bind("index", {"value", "start", "stop"}, 1, false);
      const std::int64_t size = *length(self);
      const auto bound = [&](const Value& v, std::int64_t otherwise) {
        std::int64_t at = v.is(Kind::missing) ? otherwise : small_argument(v, "the bound");
        if (at < 0) at = std::max<std::int64_t>(0, at + size);
        return at;
      };
      const std::int64_t start = bound(values[1], 0), stop = std::min(size, bound(values[2], size));
      for (std::int64_t i = start; i < stop; ++i) {
        const Value item = python_item(self, Value::of(Integer{i}));
        if (same_or_equal(item, values[0])) return Value::of(Integer{i});
      }
      fail(ErrorCode::invalid_argument, "the value is not in the {}", type_name(self));
    });
  if (self.is(Kind::tuple) && self.as<ListObject>().group) {
    if (name == "grouper") return self.items()[0];
    if (name == "list") return self.items()[1];
  }
  if (self.is(Kind::range)) {
    const auto& range = self.as<RangeObject>();
    if (name == "start") return Value::of(range.start);
    if (name == "stop") return Value::of(range.stop);
    if (name == "step") return Value::of(range.step);
  }
  return {};
}

Value number_attribute(const Value& self, std::string_view name) {
  static const std::set<std::string_view> others = {"as_integer_ratio", "bit_count", "bit_length", "from_bytes", "to_bytes", "fromhex", "hex"};
  const bool integral = self.is_integral();
  const bool foreign = self.foreign();
  if (name == "real") return integral ? Value::of(self.integer()).marked(foreign) : self;
  if (name == "imag") return integral ? Value::of(Integer{0}) : Value::of(0.0);
  if (integral && name == "numerator") return Value::of(self.integer()).marked(foreign);
  if (integral && name == "denominator") return Value::of(Integer{1});
  if (name == "conjugate" || (name == "is_integer" && !integral))
    return make_function(std::string(name), [self, name = std::string(name)](Interpreter&, Arguments& arguments) {
      arguments.bind(name, {}, 0);
      if (name == "conjugate") return self.is_integral() ? Value::of(self.integer()).marked(self.foreign()) : self;
      return Value::of(self.real() == static_cast<double>(static_cast<std::int64_t>(self.real())));
    });
  if (others.count(name)) fail(ErrorCode::unsupported, "the method '{}' of numbers is not offered in chat templates", name);
  return {};
}

Value loop_attribute(const Value& self, std::string_view name) {
  auto& loop = self.as<LoopObject>();
  const auto number = [](std::int64_t value) { return Value::of(Integer{value}); };
  if (name == "index") return number(loop.index0 + 1);
  if (name == "index0") return number(loop.index0);
  if (name == "first") return Value::of(loop.index0 == 0);
  if (name == "last") return Value::of(loop.peek().is(Kind::missing));
  if (name == "length") return number(loop.length());
  if (name == "revindex") return number(loop.length() - loop.index0);
  if (name == "revindex0") return number(loop.length() - loop.index0 - 1);
  if (name == "depth") return number(loop.depth0 + 1);
  if (name == "depth0") return number(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? make_undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.peek().is(Kind::missing) ? make_undefined("there is no next item") : loop.peek();
  if (name == "cycle")
    return make_function("cycle", [self](Interpreter&, Arguments& arguments) {
      if (!arguments.named.empty()) fail(ErrorCode::invalid_argument, "cycle() got an unexpected keyword argument");
      if (arguments.positional.empty()) fail(ErrorCode::invalid_argument, "no items for cycling given");
      const auto size = static_cast<std::int64_t>(arguments.positional.size());
      return arguments.positional[static_cast<std::size_t>((self.as<LoopObject>().index0 % size + size) % size)];
    });
  if (name == "changed")
    return make_function("changed", [self](Interpreter&, Arguments& arguments) {
      if (!arguments.named.empty()) fail(ErrorCode::invalid_argument, "changed() got an unexpected keyword argument");
      auto& l = self.as<LoopObject>();
      const bool same = l.changed_called && equals(make_tuple(l.changed), make_tuple(arguments.positional));
      l.changed_called = true;
      l.changed = arguments.positional;
      return Value::of(!same);
    });
  return {};
}

Value cycler_attribute(const Value& self, std::string_view name) {
  auto& cycler = self.as<CyclerObject>();
  if (name == "current") return cycler.items[cycler.position];
  if (name == "pos") return Value::of(static_cast<Integer>(cycler.position));
  if (name == "items") return make_tuple(cycler.items);
  if (name == "next" || name == "reset")
    return make_function(std::string(name), [self, next = name == "next"](Interpreter&, Arguments& arguments) {
      arguments.bind("cycler", {}, 0);
      auto& c = self.as<CyclerObject>();
      if (c.items.empty()) return Value::none();
      const Value item = c.items[c.position];
      c.position = next ? (c.position + 1) % c.items.size() : 0;
      return next ? item : Value::none();
    });
  return {};
}
}  // namespace

Value python_attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  static const std::set<std::string_view> internal = {
      "__class__",     "__delattr__", "__dir__",     "__doc__",           "__eq__",  "__format__",      "__ge__", "__getattribute__", "__getstate__",
      "__gt__",        "__hash__",    "__init__",    "__init_subclass__", "__le__",  "__lt__",          "__ne__", "__new__",          "__reduce__",
      "__reduce_ex__", "__repr__",    "__setattr__", "__sizeof__",        "__str__", "__subclasshook__"};
  if (object.is(Kind::name_space)) {
    if (const Value* found = object.as<NamespaceObject>().attributes.find(name)) return *found;
    return name == "__class__" ? unsafe(object, name) : Value();
  }
  if (internal.count(name)) return unsafe(object, name);
  switch (object.kind()) {
    case Kind::text:
      return string_method(object, name);
    case Kind::dict:
      return dict_attribute(object, name);
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
      return sequence_attribute(object, name);
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      return number_attribute(object, name);
    case Kind::loop:
      return loop_attribute(object, name);
    case Kind::cycler:
      return cycler_attribute(object, name);
    case Kind::joiner:
      if (name == "sep") return object.as<JoinerObject>().separator;
      if (name == "used") return Value::of(object.as<JoinerObject>().used);
      return {};
    case Kind::function:
      if (name != "fromkeys" || object.as<FunctionObject>().name != "dict") return {};
      return make_function("fromkeys", [](Interpreter&, Arguments& arguments) {
        const auto values = arguments.bind("fromkeys", {"iterable", "value"}, 1, false);
        Dict dict;
        Cursor cursor(values[0]);
        for (Value key; cursor.next(key);) dict.set(key, or_else(values[1], Value::none()));
        return make_dict(std::move(dict));
      });
    default:
      return {};
  }
}

Value python_item(const Value& object, const Value& index) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is(Kind::dict)) {
    if (!hashable(index)) return {};
    const Value* found = object.dict().find(index);
    return found ? *found : Value();
  }
  const bool sequence = object.is(Kind::text) || object.is_sequence() || object.is(Kind::range);
  if (!sequence || !index.is_integral()) return {};
  const std::int64_t size = *length(object);
  Integer at = index.integer();
  if (at < 0) at += size;
  if (at < 0 || at >= size) return {};
  const auto place = static_cast<std::int64_t>(at);
  if (object.is_sequence()) return object.items()[static_cast<std::size_t>(place)];
  if (object.is(Kind::range)) return Value::of(object.as<RangeObject>().at(place));
  const std::size_t begin = object.text().byte_of(place);
  return Value::of(object.text().slice(begin, object.text().character_end(begin)));
}

Value get_attribute(const Value& object, const Value& name) {
  const std::string_view key = name.text().view();
  Value value = python_attribute(object, key);
  if (value.is(Kind::missing)) value = python_item(object, name);
  if (!value.is(Kind::missing)) return value;
  return make_undefined(fmt::format("'{}' object has no attribute '{}'", type_name(object), utf8_excerpt(key)));
}

Value get_item(const Value& object, const Value& index) {
  Value value = python_item(object, index);
  if (value.is(Kind::missing) && index.is(Kind::text)) value = python_attribute(object, index.text().view());
  if (!value.is(Kind::missing)) return value;
  if (index.is(Kind::text)) return make_undefined(fmt::format("'{}' object has no attribute '{}'", type_name(object), utf8_excerpt(index.text().view())));
  return make_undefined(fmt::format("{} object has no element {}", type_name(object), utf8_excerpt(repr(index).view())));
}

Value python_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  const bool sequence = object.is(Kind::text) || object.is_sequence() || object.is(Kind::range);
  if (!sequence) fail(ErrorCode::invalid_argument, "'{}' object cannot be sliced", type_name(object));
  const std::int64_t size = *length(object);
  const Value* parts[] = {&start, &stop, &step};
  for (const Value* part : parts)
    if (!part->is(Kind::none) && !part->is_integral()) fail(ErrorCode::invalid_argument, "slice indices must be integers or None, not {}", type_name(*part));
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  const auto small = [&](const Value& v) { return static_cast<std::int64_t>(std::clamp<Integer>(v.integer(), -kFar, kFar)); };
  const std::int64_t by = step.is(Kind::none) ? 1 : small(step);
  if (by == 0) fail(ErrorCode::invalid_argument, "slice step cannot be zero");
  const auto bound = [&](const Value& v, std::int64_t otherwise) {
    if (v.is(Kind::none)) return otherwise;
    std::int64_t at = small(v);
    if (at < 0) at += size;
    return by > 0 ? std::clamp<std::int64_t>(at, 0, size) : std::clamp<std::int64_t>(at, -1, size - 1);
  };
  const std::int64_t first = bound(start, by > 0 ? 0 : size - 1), last = bound(stop, by > 0 ? size : -1);
  if (object.is(Kind::range)) {
    const auto& range = object.as<RangeObject>();
    auto part = std::make_shared<RangeObject>();
    part->start = range.at(first);
    part->stop = range.at(last);
    part->step = range.step * by;
    return Value::object(Kind::range, std::move(part));
  }
  if (object.is(Kind::text)) {
    const Text& text = object.text();
    if (by == 1) {
      if (first >= last) return Value::of(text.slice(0, 0));
      return Value::of(text.slice(text.byte_of(first), text.byte_of(last)));
    }
    std::vector<std::size_t> begins;
    each_character(text.view(), [&](std::uint32_t, std::size_t begin, std::size_t) { begins.push_back(begin); });
    TextBuilder out;
    for (std::int64_t i = first; by > 0 ? i < last : i > last; i += by) {
      const std::size_t begin = begins[static_cast<std::size_t>(i)];
      out.append_slice(text, begin, text.character_end(begin));
    }
    Text result = out.take();
    result.set_markup(text.markup());
    return Value::of(std::move(result));
  }
  List items;
  for (std::int64_t i = first; by > 0 ? i < last : i > last; i += by) items.push_back(object.items()[static_cast<std::size_t>(i)]);
  return make_list(std::move(items), object.kind());
}

}  // namespace lockstep::jinja
