// Scans JSON character by character: whether it can still become a value, and which part of one comes next; for JSON that is forwarded
// before it is complete.
//   JsonScanner scanner; for (char c : text) if (!scanner.feed(c)) break; if (scanner.done()) ...
// Builds nothing. In strings it accepts control characters, which models write and JSON forbids: whoever
// forwards them escapes them (append_json_character). UTF-8 is not checked. One text, one thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class JsonScanner {
 public:
  static constexpr std::size_t kMostDepth = 512;
  // What may come next; `inside`: more of a string, a number or a word.
  enum class Next { value, key, colon, separator, inside, nothing };

  // False for a character that cannot stand here; then nothing has changed. A number at the top ends with what follows it.
  bool feed(char c);
  Next next() const { return next_; }
  bool in_string() const { return next_ == Next::inside && part_ == Part::string; }
  std::size_t depth() const { return open_.size(); }  // objects and arrays that are open
  bool done() const { return next_ == Next::nothing; }

 private:
  enum class Part { string, escape, unicode, word, number };
  enum class Number { minus, zero, digits, dot, fraction, e, sign, exponent };
  bool begin_value(char c);
  bool feed_string(char c);
  bool feed_number(char c);
  bool close(char bracket);
  void end_value();

  std::string open_;  // { or [ of each level
  Next next_ = Next::value;
  Part part_ = Part::string;
  bool may_close_ = false;  // nothing stands in this object or array yet
  bool is_key_ = false;
  // Within a part.
  std::string_view word_;
  Number number_ = Number::minus;
  int unicode_left_ = 0;
  std::uint32_t unicode_ = 0;
  bool wants_low_ = false;  // behind the first half of a surrogate pair
};

// `c` of a JSON text as it is passed on.
void append_json_character(std::string& out, char c, bool in_string);
// `text` as the inside of a JSON string; in pieces of any size.
void append_json_inside(std::string& out, std::string_view text);

}  // namespace lockstep
