#include <algorithm>
#include <set>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/builtins.h"
#include "text/template/comparison.h"
#include "text/template/interpreter.h"
#include "text/template/iteration.h"
#include "text/template/numbers.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {
namespace {
using Getter = std::function<Value(const Value&)>;

Value ignore_case(const Value& value) { return value.is(Kind::text) ? Value::of(change_case(value.text(), Casing::lower)) : value; }

// "a.b.0" or an index: the parts to look up one after the other.
List attribute_path(const Value& attribute) {
  List path;
  if (attribute.is(Kind::missing) || attribute.is(Kind::none)) return path;
  if (!attribute.is(Kind::text)) return {attribute};
  for (const Text& part : split(attribute.text(), ".", -1, false)) {
    const bool digits = !part.empty() && part.view().find_first_not_of("0123456789") == std::string_view::npos;
    path.push_back(digits ? Value::of(*parse_integer(part.view(), 10)) : Value::of(part));
  }
  return path;
}

Getter attribute_getter(const Value& attribute, bool fold_case, Value otherwise = {}) {
  return [path = attribute_path(attribute), fold_case, otherwise = std::move(otherwise)](const Value& item) {
    Value value = item;
    for (const Value& part : path) {
      value = get_item(value, part);
      if (!otherwise.is(Kind::missing) && !otherwise.is(Kind::none) && value.is_undefined()) value = otherwise;
    }
    return fold_case ? ignore_case(value) : value;
  };
}

bool flag(const Value& value) { return truth(value); }

List sorted(const List& items, const Getter& key, bool reverse) {
  std::vector<std::pair<Value, std::size_t>> keyed;
  for (std::size_t i = 0; i < items.size(); ++i) {
    RenderBudget::step();
    keyed.emplace_back(key(items[i]), i);
  }
  // Python keeps the order of equal items in both directions.
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& a, const auto& b) { return reverse ? less(b.first, a.first, "<") : less(a.first, b.first, "<"); });
  List out;
  for (const auto& [value, index] : keyed) out.push_back(items[index]);
  return out;
}

Value f_sort(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("sort", {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<Getter> getters;
  const bool fold = !flag(values[1]);
  if (values[2].is(Kind::text))
    for (const Text& part : split(values[2].text(), ",", -1, false)) getters.push_back(attribute_getter(Value::of(part), fold));
  else getters.push_back(attribute_getter(values[2], fold));
  const Getter key = [&](const Value& item) {
    List keys;
    for (const Getter& getter : getters) keys.push_back(getter(item));
    return make_list(std::move(keys));
  };
  return make_list(sorted(to_list(subject), key, flag(values[0])));
}

Value f_dictsort(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("dictsort", {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = values[1].is(Kind::missing) ? "key" : values[1].is(Kind::text) ? values[1].text().bytes() : "";
  if (by != "key" && by != "value") fail(ErrorCode::invalid_argument, "You can only sort by either \"key\" or \"value\"");
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is(Kind::dict)) fail(ErrorCode::invalid_argument, "'{}' object has no attribute 'items'", type_name(subject));
  List items;
  for (const auto& [key, value] : subject.dict().entries()) items.push_back(make_tuple({key, value}));
  const bool fold = !flag(values[0]);
  const Getter key = [&](const Value& item) { return fold ? ignore_case(item.items()[by == "value"]) : item.items()[by == "value"]; };
  return make_list(sorted(items, key, flag(values[2])));
}

Value f_first(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("first", {}, 0);
  Cursor cursor(subject);
  Value item;
  return cursor.next(item) ? item : make_undefined("No first item, sequence was empty.");
}

bool reversible(const Value& v) {
  return v.is_undefined() || v.is(Kind::text) || v.is_sequence() || v.is(Kind::dict) || v.is(Kind::dict_view) || v.is(Kind::range);
}

Value f_last(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("last", {}, 0);
  if (!reversible(subject)) fail(ErrorCode::invalid_argument, "'{}' object is not reversible", type_name(subject));
  if (*length(subject) == 0) return make_undefined("No last item, sequence was empty.");
  if (subject.is(Kind::dict) || subject.is(Kind::dict_view)) return to_list(subject).back();
  return python_item(subject, Value::of(Integer{-1}));
}

Value over(List items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return make_iterator(
      [items = std::move(items), at = std::size_t{0}](Value& item) mutable {
        if (at == items.size()) return false;
        item = items[at++];
        return true;
      },
      depth);
}

Value f_reverse(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("reverse", {}, 0);
  if (subject.is(Kind::text)) return python_slice(subject, Value::none(), Value::none(), Value::of(Integer{-1}));
  if (!Cursor::can_iterate(subject)) fail(ErrorCode::invalid_argument, "argument must be iterable");
  List items = to_list(subject);
  std::reverse(items.begin(), items.end());
  return reversible(subject) ? over(std::move(items)) : make_list(std::move(items));
}

Value f_list(Interpreter&, const Value& s, Arguments& a) { return a.bind("list", {}, 0), make_list(to_list(s)); }

Value f_items(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("items", {}, 0);
  return make_iterator(
      [subject, at = std::size_t{0}](Value& item) mutable {
        if (subject.is_undefined()) return false;
        if (!subject.is(Kind::dict)) fail(ErrorCode::invalid_argument, "Can only get item pairs from a mapping.");
        if (at == subject.dict().size()) return false;
        const auto& [key, value] = subject.dict().entries()[at++];
        item = make_tuple({key, value});
        return true;
      },
      subject.depth() + 1);
}

Value f_join(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("join", {"d", "attribute"}, 0);
  const Text between = str(or_else(values[0], Value::text("")));
  const Getter getter = attribute_getter(values[1], false);
  TextBuilder out;
  Cursor cursor(subject);
  bool first = true;
  for (Value item; cursor.next(item);) {
    if (!first) out.append(between);
    first = false;
    out.append(str(getter(item)));
  }
  return Value::of(out.take());
}

Value extreme(const Value& subject, Arguments& arguments, bool largest) {
  const auto values = arguments.bind(largest ? "max" : "min", {"case_sensitive", "attribute"}, 0);
  const Getter key = attribute_getter(values[1], !flag(values[0]));
  Cursor cursor(subject);
  Value best, best_key;
  if (!cursor.next(best)) return make_undefined("No aggregated item, sequence was empty.");
  best_key = key(best);
  for (Value item; cursor.next(item);) {
    Value item_key = key(item);
    if (!(largest ? less(best_key, item_key, "<") : less(item_key, best_key, "<"))) continue;
    best = item;
    best_key = std::move(item_key);
  }
  return best;
}
Value f_max(Interpreter&, const Value& s, Arguments& a) { return extreme(s, a, true); }
Value f_min(Interpreter&, const Value& s, Arguments& a) { return extreme(s, a, false); }

Value f_sum(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("sum", {"attribute", "start"}, 0);
  Value total = or_else(values[1], Value::of(Integer{0}));
  if (total.is(Kind::text)) fail(ErrorCode::invalid_argument, "sum() can't sum strings");
  const Getter getter = attribute_getter(values[0], false);
  Cursor cursor(subject);
  for (Value item; cursor.next(item);) total = binary_operation(interpreter, "+", total, getter(item));
  return total;
}

Value f_unique(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("unique", {"case_sensitive", "attribute"}, 0);
  return make_iterator(
      [subject, getter = attribute_getter(values[1], !flag(values[0])), cursor = std::shared_ptr<Cursor>(), seen = Dict()](Value& item) mutable {
        if (!cursor) cursor = std::make_shared<Cursor>(subject);
        while (cursor->next(item)) {
          const Value key = getter(item);
          if (seen.find(key)) continue;
          seen.set(key, Value::none());
          return true;
        }
        return false;
      },
      subject.depth());
}

Value f_batch(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("batch", {"linecount", "fill_with"}, 1);
  return make_iterator(
      [subject, count = values[0], fill = or_else(values[1], Value::none()), cursor = std::shared_ptr<Cursor>(), ended = false](Value& out) mutable {
        if (!cursor) cursor = std::make_shared<Cursor>(subject);
        if (ended) return false;
        // A line is full when it has exactly so many: nought or less is never reached.
        const Integer most = integer_argument(count, "linecount");
        List line;
        for (Value item; (most <= 0 || static_cast<Integer>(line.size()) < most);) {
          if (!cursor->next(item)) {
            ended = true;
            break;
          }
          line.push_back(std::move(item));
        }
        if (most == 0 && !line.empty()) fail(ErrorCode::unsupported, "batches of 0 items are not offered in chat templates");
        if (line.empty()) return false;
        if (!fill.is(Kind::none) && static_cast<Integer>(line.size()) < most) {
          RenderBudget::bytes(static_cast<std::size_t>(std::min<Integer>(most, Integer{1} << 60)));
          line.resize(static_cast<std::size_t>(most), fill);
        }
        out = make_list(std::move(line));
        return true;
      },
      subject.depth() + 1);
}

Value f_slice(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("slice", {"slices", "fill_with"}, 1);
  const std::int64_t slices = small_argument(values[0], "slices");
  if (slices == 0) fail(ErrorCode::invalid_argument, "integer division or modulo by zero");
  const Value fill = or_else(values[1], Value::none());
  const List items = to_list(subject);
  List out;
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    RenderBudget::step();
    const std::int64_t length = size / slices + (i < size % slices);
    List part(items.begin() + start, items.begin() + start + length);
    if (!fill.is(Kind::none) && i >= size % slices) part.push_back(fill);
    start += length;
    out.push_back(make_list(std::move(part)));
  }
  return over(std::move(out));
}

Value f_groupby(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("groupby", {"attribute", "default", "case_sensitive"}, 1);
  const Getter key = attribute_getter(values[0], !flag(values[2]), values[1]), shown = attribute_getter(values[0], false, values[1]);
  const List items = sorted(to_list(subject), key, false);
  List groups;
  for (std::size_t i = 0; i < items.size();) {
    const Value group_key = key(items[i]);
    const Value label = shown(items[i]);
    List members;
    while (i < items.size() && equals(key(items[i]), group_key)) members.push_back(items[i++]);
    if (members.empty()) members.push_back(items[i++]);  // a key that is not equal to itself
    Value group = make_tuple({label, make_list(std::move(members))});
    group.as<ListObject>().group = true;
    groups.push_back(std::move(group));
  }
  return make_list(std::move(groups));
}

// --- map, select, reject: read as they are used

using Transform = std::function<Value(const Value&)>;

Transform mapping(Interpreter& interpreter, Arguments arguments) {
  if (arguments.positional.empty() && !arguments.named.empty() &&
      std::any_of(arguments.named.begin(), arguments.named.end(), [](const auto& n) { return n.first == "attribute"; })) {
    Value attribute, otherwise;
    for (const auto& [name, value] : arguments.named) {
      if (name == "attribute") attribute = value;
      else if (name == "default") otherwise = value;
      else fail(ErrorCode::invalid_argument, "Unexpected keyword argument '{}'", utf8_excerpt(name));
    }
    return attribute_getter(attribute, false, otherwise);
  }
  if (arguments.positional.empty()) fail(ErrorCode::invalid_argument, "map requires a filter argument");
  const std::string name(text_argument(arguments.positional[0], "the filter's name"));
  arguments.positional.erase(arguments.positional.begin());
  return [&interpreter, name, arguments](const Value& item) {
    Arguments own = arguments;
    return interpreter.apply_filter(name, item, own);
  };
}

Transform choosing(Interpreter& interpreter, Arguments arguments, bool by_attribute) {
  Getter transform = [](const Value& item) { return item; };
  if (by_attribute) {
    if (arguments.positional.empty()) fail(ErrorCode::invalid_argument, "Missing parameter for attribute name");
    transform = attribute_getter(arguments.positional[0], false);
    arguments.positional.erase(arguments.positional.begin());
  }
  if (arguments.positional.empty()) return [transform](const Value& item) { return Value::of(truth(transform(item))); };
  const std::string name(text_argument(arguments.positional[0], "the test's name"));
  arguments.positional.erase(arguments.positional.begin());
  return [&interpreter, name, arguments, transform](const Value& item) {
    Arguments own = arguments;
    return Value::of(interpreter.apply_test(name, transform(item), own));
  };
}

Value lazily(const Value& subject, std::function<Transform()> prepare, std::function<bool(const Transform&, const Value&, Value&)> emit) {
  return make_iterator(
      [subject, prepare = std::move(prepare), emit = std::move(emit), function = Transform(), cursor = std::shared_ptr<Cursor>()](Value& out) mutable {
        if (!cursor) {
          if (!truth(subject)) return false;
          function = prepare();
          cursor = std::make_shared<Cursor>(subject);
        }
        for (Value item; cursor->next(item);)
          if (emit(function, item, out)) return true;
        return false;
      },
      subject.depth());
}

Value f_map(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  return lazily(
      subject, [&interpreter, arguments] { return mapping(interpreter, arguments); },
      [](const Transform& f, const Value& item, Value& out) {
        out = f(item);
        return true;
      });
}

template <bool wanted, bool by_attribute>
Value f_choose(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  return lazily(
      subject, [&interpreter, arguments] { return choosing(interpreter, arguments, by_attribute); },
      [](const Transform& f, const Value& item, Value& out) {
        if (truth(f(item)) != wanted) return false;
        out = item;
        return true;
      });
}
}  // namespace

const Table<Filter>& sequence_filters() {
  static const Table<Filter> table = {
      {"batch", f_batch},
      {"dictsort", f_dictsort},
      {"first", f_first},
      {"groupby", f_groupby},
      {"items", f_items},
      {"join", f_join},
      {"last", f_last},
      {"list", f_list},
      {"map", f_map},
      {"max", f_max},
      {"min", f_min},
      {"reject", f_choose<false, false>},
      {"rejectattr", f_choose<false, true>},
      {"reverse", f_reverse},
      {"select", f_choose<true, false>},
      {"selectattr", f_choose<true, true>},
      {"slice", f_slice},
      {"sort", f_sort},
      {"sum", f_sum},
      {"unique", f_unique},
  };
  return table;
}

}  // namespace lockstep::jinja
