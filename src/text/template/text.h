// A string of the template language: UTF-8 bytes, indexed by code points as in Python, each byte marked as
// coming from outside (messages, tools, extras) or from the template. Operations propagate the marks:
// a byte that may have come from outside is never reported as the template's own.
//   TextBuilder out; out.append("<|user|>"); out.append(content); Text text = out.take();
// Knows no template. Thread rule: plain values. Growing one charges the thread's RenderBudget (budget.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_range.h"

namespace lockstep::jinja {

using ByteRange = TextRange;

class Text {
 public:
  Text() = default;
  // Of the template itself, or all of it from outside.
  explicit Text(std::string bytes, bool foreign = false);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  // Ascending, disjoint, not empty: what came from outside.
  const std::vector<ByteRange>& foreign() const { return foreign_; }
  bool is_foreign() const { return !foreign_.empty(); }
  // Escaped HTML, jinja's Markup: adding to it escapes what is added.
  bool markup() const { return markup_; }
  void set_markup(bool markup) { markup_ = markup; }

  std::int64_t length() const { return length_; }        // code points
  Text slice(std::size_t begin, std::size_t end) const;  // bytes, at character borders
  std::size_t byte_of(std::int64_t character) const;     // 0 <= character <= length
  std::size_t character_end(std::size_t byte) const;     // end of the character that begins there

 private:
  friend class TextBuilder;
  std::string bytes_;
  std::vector<ByteRange> foreign_;
  std::int64_t length_ = 0;
  bool markup_ = false;
};

class TextBuilder {
 public:
  void append(std::string_view bytes, bool foreign = false);
  void append(const Text& text) { append_slice(text, 0, text.bytes().size()); }
  void append_slice(const Text& text, std::size_t begin, std::size_t end);
  void append(char byte) { append(std::string_view(&byte, 1)); }
  std::size_t size() const { return bytes_.size(); }
  void limit(std::size_t most_bytes) { most_ = most_bytes; }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  // The text so far; the builder is empty again.
  Text take();

 private:
  void mark(std::size_t begin, std::size_t end);
  std::string bytes_;
  std::vector<ByteRange> foreign_;
  std::size_t most_ = SIZE_MAX;
};

// --- What Python's str does. Positions are bytes.
bool is_python_space(std::uint32_t codepoint);
enum class Side { left, right, both };
Text strip(const Text& text, Side side);                          // white space
Text strip(const Text& text, Side side, std::string_view chars);  // any character of `chars`
std::vector<Text> split_white_space(const Text& text, std::int64_t most, bool from_right);
std::vector<Text> split(const Text& text, std::string_view separator, std::int64_t most, bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
Text replace(const Text& text, std::string_view old, const Text& with, std::int64_t most);
Text html_escape(const Text& text);

enum class Casing { upper, lower, title, capitalize, swap };
Text change_case(const Text& text, Casing casing);
// The characters one by one, each with its range in the text.
template <class F>
void each_character(std::string_view bytes, F&& f);
// Where `part` stands first or last in `text`, npos when nowhere; in time proportional to both, whatever they are.
std::size_t find_first(std::string_view text, std::string_view part, std::size_t from = 0);
std::size_t find_last(std::string_view text, std::string_view part);

}  // namespace lockstep::jinja

#include "text/template/budget.h"
#include "text/utf8.h"

namespace lockstep::jinja {
template <class F>
void each_character(std::string_view bytes, F&& f) {
  RenderBudget::read(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = utf8_front(bytes.substr(at));
    f(unit.codepoint, at, at + unit.bytes);
    at += unit.bytes;
  }
}
}  // namespace lockstep::jinja
