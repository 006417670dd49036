#include "api/tinker/body_head.h"

#include "base/bounded_json.h"
#include "base/client_work.h"

namespace lockstep {
namespace {
constexpr std::size_t kLongestHeadText = 1000;

// Finds a field by following braces and quotes alone, without parsing values.
class FieldFinder {
 public:
  explicit FieldFinder(std::string_view name) : name_(name) {}
  // True: found, in value().
  bool read(std::string_view piece) {
    for (std::size_t i = 0; i < piece.size(); ++i) {
      if (in_text_ && depth_ != 1 && !escaped_) {  // of the data: most of a body
        const std::size_t end = piece.find_first_of("\"\\", i);
        if (end == std::string_view::npos) return false;
        i = end;
      }
      if (in_text_ ? text_character(piece[i]) : plain_character(piece[i])) return true;
    }
    return false;
  }
  std::string value() const { return unquoted(); }

 private:
  std::string unquoted() const {
    const nlohmann::ordered_json text = read_json_or_null(text_);
    return text.is_string() ? text.get<std::string>() : std::string();
  }
  bool text_character(char c) {
    if (depth_ == 1 && text_.size() <= kLongestHeadText) text_ += c;
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_text_ = false;
      if (depth_ != 1) return false;
      if (is_value_) return wanted_ && text_.size() <= kLongestHeadText;
      wanted_ = text_.size() <= kLongestHeadText && unquoted() == name_;
    }
    return false;
  }
  bool plain_character(char c) {
    switch (c) {
      case '"':
        in_text_ = true;
        if (depth_ == 1) text_.assign(1, c);
        break;
      case '{':
      case '[':
        ++depth_;
        break;
      case '}':
      case ']':
        --depth_;
        break;
      case ':':
        is_value_ = is_value_ || depth_ == 1;
        break;
      case ',':
        is_value_ = is_value_ && depth_ != 1;
        break;
    }
    return false;
  }

  const std::string_view name_;
  std::string text_;  // the current name or value of the outermost object
  std::int64_t depth_ = 0;
  bool in_text_ = false, escaped_ = false, is_value_ = false, wanted_ = false;
};
}  // namespace

std::optional<std::string> json_field(ByteSource& source, std::string_view name) {
  FieldFinder finder(name);
  for (std::string_view piece = source.next(); !piece.empty(); piece = source.next()) {
    ClientWork::check();
    if (finder.read(piece)) return finder.value();
  }
  return std::nullopt;
}

}  // namespace lockstep
