// Incrementally parses the tool calls of one block, such as the text between <tool_call> and </tool_call>.
//   CallStep step = reader->step(text, ended); text.remove_prefix(step.used);
// A step looks at the unread text, consumes some of it and reports at most one event; it never retracts one. Where it consumes text, the way the
// text was cut does not matter; where it waits for more, it consumes nothing. Knows nothing of messages. One block, one thread.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "text/message/argument_types.h"

namespace lockstep {

struct CallStep {
  enum class Kind {
    more,       // nothing can be said before more text is there
    skipped,    // markup, or text that says nothing yet
    name,       // a call begins: text is its name, id where the format has one
    arguments,  // text is the next piece of the call's arguments: JSON of one object in all
    call_end,   // the call is whole, its arguments too
    block_end,
    malformed,  // what comes next cannot stand here
  };
  Kind kind = Kind::more;
  std::size_t used = 0;
  std::string text = {}, id = {};
};

class CallReader {
 public:
  static constexpr std::size_t kMostTitleBytes = 512;  // of the text in which a name stands
  virtual ~CallReader() = default;
  // `ended`: no text follows.
  virtual CallStep step(std::string_view text, bool ended) = 0;
};

// One call as JSON: {"name": ..., "arguments" or "parameters": {...}}, in any order; other members are ignored, and arguments may be a string that
// contains the object.
std::unique_ptr<CallReader> make_json_call_reader();
// The same, followed by `end`; `list`: several calls in brackets.
std::unique_ptr<CallReader> make_json_block_reader(std::string_view end, bool list);

// Calls of the form BEGIN title SEPARATOR {arguments} END, one or more, up to block_end.
struct MarkedWords {
  std::string_view begin, separator, end, block_end;
  bool id_title = false;  // the title is functions.NAME:INDEX, the call's id
  bool fence = false;     // the title may be `function`: then the name follows, and the arguments in a code fence
};
std::unique_ptr<CallReader> make_marked_reader(const MarkedWords& words);

// Calls of the form FUNCTION name FUNCTION_CLOSE, any number of PARAMETER key PARAMETER_CLOSE value PARAMETER_END, FUNCTION_END; one or more, up to
// block_end. Without `function` the block is one call, whose name ends where a parameter or block_end begins.
struct TagWords {
  std::string_view function, function_close, function_end;
  std::string_view parameter, parameter_close, parameter_end;
  std::string_view block_end;
  std::string_view value = {};  // stands between parameter_close and the value, white space before it
  bool newline_around = false;  // one newline on each side of a value is markup
  bool string_flag = false;     // ` string="true">` or ` string="false">` or `>` stands there
};
std::unique_ptr<CallReader> make_tag_reader(const TagWords& words, const ArgumentTypes& types);

// Tools for readers.
bool is_text_space(char c);
std::size_t count_space(std::string_view text);
// A tool's or an argument's name, trimmed; empty if the text is no name.
std::string name_in(std::string_view text);
enum class Match { no, maybe, yes };
// Whether `text` begins with `word`; maybe: it ends too early to know.
Match match_word(std::string_view text, std::string_view word);
// Where the longest end of `text` begins that could become `word` with more text; its size when there is none.
std::size_t partial_word(std::string_view text, std::string_view word);

}  // namespace lockstep
