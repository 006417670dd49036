#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/builtins.h"
#include "text/template/comparison.h"
#include "text/template/iteration.h"
#include "text/template/numbers.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {
namespace {
class JsonWriter {
 public:
  bool ascii = false, sort_keys = false;
  std::optional<std::string> indent;
  Text comma = Text(", "), colon = Text(": ");
  TextBuilder out;

  void write(const Value& value) {
    const RenderBudget::Nested nested;
    RenderBudget::step();
    switch (value.kind()) {
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        return out.append(scalar(value));
      case Kind::text:
        return string(value.text());
      case Kind::list:
      case Kind::tuple:
        return array(value.items());
      case Kind::dict:
        return object(value.dict());
      default:
        fail(ErrorCode::invalid_argument, "Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }

  static Text scalar(const Value& value) {
    const bool foreign = value.foreign();
    if (value.is(Kind::none)) return Text("null", foreign);
    if (value.is(Kind::boolean)) return Text(value.boolean() ? "true" : "false", foreign);
    return Text(value.is(Kind::integer) ? integer_text(value.integer()) : real(value.real()), foreign);
  }

  void string(const Text& text) {
    out.append('"');
    std::size_t start = 0;
    each_character(text.view(), [&](std::uint32_t c, std::size_t begin, std::size_t end) {
      std::string escape;
      if (c == '"' || c == '\\') escape = {'\\', static_cast<char>(c)};
      else if (c == '\n') escape = "\\n";
      else if (c == '\r') escape = "\\r";
      else if (c == '\t') escape = "\\t";
      else if (c == '\b') escape = "\\b";
      else if (c == '\f') escape = "\\f";
      else if (c < 0x20 || (ascii && c >= 0x80 && c < 0x10000)) escape = fmt::format("\\u{:04x}", c);
      else if (ascii && c >= 0x10000) escape = fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
      else return;
      out.append_slice(text, start, begin);
      out.append(escape, text.is_foreign());
      start = end;
    });
    out.append_slice(text, start, text.bytes().size());
    out.append('"');
  }

  void line() {
    if (!indent) return;
    out.append('\n');
    for (int i = 0; i < level_; ++i) out.append(*indent);
  }

  void array(const List& items) {
    if (items.empty()) return out.append("[]");
    out.append('[');
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i) out.append(comma);
      line();
      write(items[i]);
    }
    --level_;
    line();
    out.append(']');
  }

  void object(const Dict& dict) {
    if (dict.size() == 0) return out.append("{}");
    auto entries = dict.entries();
    if (sort_keys) std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return less(a.first, b.first, "<"); });
    out.append('{');
    ++level_;
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (!first) out.append(comma);
      first = false;
      line();
      switch (key.kind()) {
        case Kind::text:
          string(key.text());
          break;
        case Kind::none:
        case Kind::boolean:
        case Kind::integer:
        case Kind::real:
          string(scalar(key));
          break;
        default:
          fail(ErrorCode::invalid_argument, "keys must be str, int, float, bool or None, not {}", type_name(key));
      }
      out.append(colon);
      write(value);
    }
    --level_;
    line();
    out.append('}');
  }

  int level_ = 0;
};
}  // namespace

Value to_json(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonWriter writer;
  writer.ascii = truth(values[0]);
  writer.sort_keys = truth(values[3]);
  const Value& indent = values[1];
  if (indent.is(Kind::text)) {
    writer.indent = indent.text().bytes();
  } else if (!indent.is(Kind::missing) && !indent.is(Kind::none)) {
    const std::int64_t width = small_argument(indent, "indent");
    if (width > 1000) fail(ErrorCode::resource_exhausted, "tojson's indent is {}, allowed is up to 1000", width);
    writer.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' ');
  }
  if (writer.indent) writer.comma = Text(",");
  if (!values[2].is(Kind::missing) && !values[2].is(Kind::none)) {
    const List separators = to_list(values[2]);
    if (separators.size() != 2) fail(ErrorCode::invalid_argument, "tojson's separators are two strings, not {}", separators.size());
    text_argument(separators[0], "the separator");
    text_argument(separators[1], "the separator");
    writer.comma = separators[0].text();
    writer.colon = separators[1].text();
  }
  writer.write(subject);
  return Value::of(writer.out.take());
}

}  // namespace lockstep::jinja
