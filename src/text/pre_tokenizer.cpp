#include "text/pre_tokenizer.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "text/json_object.h"
#include "text/regex.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

class PreTokenizer::Step {
 public:
  virtual ~Step() = default;
  virtual void split(std::string_view piece, Pieces& out, Arena& arena) const = 0;
};

namespace {
using Pieces = PreTokenizer::Pieces;
using Arena = PreTokenizer::Arena;

constexpr std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// What becomes of the delimiters that a pattern finds.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
constexpr std::array<std::pair<std::string_view, Behavior>, 5> kBehaviors = {{{"Removed", Behavior::removed},
                                                                              {"Isolated", Behavior::isolated},
                                                                              {"MergedWithPrevious", Behavior::merged_with_previous},
                                                                              {"MergedWithNext", Behavior::merged_with_next},
                                                                              {"Contiguous", Behavior::contiguous}}};

struct Segment {
  std::size_t begin, end;
  bool delimiter;
};

// Matches and what lies between them, covering the whole text; empty segments stay, for they part their neighbours.
std::vector<Segment> segments_of(const std::vector<TextRange>& matches, std::size_t size, bool invert) {
  std::vector<Segment> segments;
  std::size_t at = 0;
  for (const TextRange& match : matches) {
    if (match.begin != at) segments.push_back({at, match.begin, invert});
    segments.push_back({match.begin, match.end, !invert});
    at = match.end;
  }
  if (at != size) segments.push_back({at, size, invert});
  return segments;
}

std::vector<TextRange> pieces_of(Behavior behavior, const std::vector<Segment>& segments) {
  std::vector<TextRange> pieces;
  const std::size_t count = segments.size();
  bool previous = false;
  switch (behavior) {
    case Behavior::isolated:
      for (const Segment& s : segments) pieces.push_back({s.begin, s.end});
      break;
    case Behavior::removed:
      for (const Segment& s : segments) {
        if (!s.delimiter) pieces.push_back({s.begin, s.end});
      }
      break;
    case Behavior::contiguous:
      for (const Segment& s : segments) {
        if (!pieces.empty() && s.delimiter == previous) {
          pieces.back().end = s.end;
        } else {
          pieces.push_back({s.begin, s.end});
        }
        previous = s.delimiter;
      }
      break;
    case Behavior::merged_with_previous:
      for (const Segment& s : segments) {
        if (s.delimiter && !previous && !pieces.empty()) {
          pieces.back().end = s.end;
        } else {
          pieces.push_back({s.begin, s.end});
        }
        previous = s.delimiter;
      }
      break;
    case Behavior::merged_with_next:
      for (std::size_t i = count; i-- > 0;) {
        const Segment& s = segments[i];
        if (s.delimiter && !previous && !pieces.empty()) {
          pieces.back().begin = s.begin;
        } else {
          pieces.push_back({s.begin, s.end});
        }
        previous = s.delimiter;
      }
      pieces = {pieces.rbegin(), pieces.rend()};
      break;
  }
  return pieces;
}

void append(std::string_view text, const std::vector<TextRange>& ranges, Pieces& out) {
  for (const TextRange& range : ranges) {
    if (range.end > range.begin) out.push_back(text.substr(range.begin, range.end - range.begin));
  }
}

class SplitStep : public PreTokenizer::Step {
 public:
  explicit SplitStep(JsonObject& object) {
    JsonObject pattern(object.object("pattern"), object.path("pattern"));
    if (pattern.has("Regex")) {
      regex_ = std::make_unique<Regex>(pattern.text("Regex"));
    } else {
      literal_ = pattern.text("String");
      if (literal_.empty()) fail(ErrorCode::unsupported, "{} is empty, allowed is some text", pattern.path("String"));
    }
    pattern.finish();
    const std::string name = object.text("behavior");
    std::vector<std::string> names;
    bool known = false;
    for (const auto& [candidate, behavior] : kBehaviors) {
      names.emplace_back(candidate);
      if (candidate == name) behavior_ = behavior, known = true;
    }
    if (!known) {
      fail(ErrorCode::unsupported, "{} is '{}', allowed is {}{}", object.path("behavior"), utf8_excerpt(name),
           fmt::join(names, ", "), did_you_mean(name, names));
    }
    invert_ = object.flag("invert", false);
  }

  void split(std::string_view piece, Pieces& out, Arena&) const override {
    append(piece, pieces_of(behavior_, segments_of(regex_ ? regex_->find_all(piece) : find_literal(piece), piece.size(), invert_)), out);
  }

 private:
  std::vector<TextRange> find_literal(std::string_view piece) const {
    std::vector<TextRange> matches;
    for (std::size_t at = piece.find(literal_); at != std::string_view::npos; at = piece.find(literal_, at + literal_.size())) {
      matches.push_back({at, at + literal_.size()});
    }
    return matches;
  }

  std::unique_ptr<Regex> regex_;
  std::string literal_;
  Behavior behavior_ = Behavior::isolated;
  bool invert_ = false;
};

class DigitsStep : public PreTokenizer::Step {
 public:
  explicit DigitsStep(JsonObject& object)
      : digit_("\\p{N}"), behavior_(object.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous) {}

  void split(std::string_view piece, Pieces& out, Arena&) const override {
    append(piece, pieces_of(behavior_, segments_of(digit_.find_all(piece), piece.size(), false)), out);
  }

 private:
  Regex digit_;
  Behavior behavior_;
};

class ByteLevelStep : public PreTokenizer::Step {
 public:
  explicit ByteLevelStep(JsonObject& object) : prefix_space_(object.flag("add_prefix_space", true)) {
    if (object.flag("use_regex", true)) regex_ = std::make_unique<Regex>(kGpt2Pattern);
    object.flag("trim_offsets", true);  // concerns offsets, not ids
  }

  void split(std::string_view piece, Pieces& out, Arena& arena) const override {
    if (prefix_space_ && piece.front() != ' ') {
      std::string spaced = " ";
      spaced += piece;
      piece = arena.emplace_back(std::move(spaced));
    }
    if (!regex_) {
      out.push_back(piece);
      return;
    }
    append(piece, pieces_of(Behavior::isolated, segments_of(regex_->find_all(piece), piece.size(), false)), out);
  }

 private:
  bool prefix_space_;
  std::unique_ptr<Regex> regex_;
};

// A Sequence inside a Sequence only adds its steps; deeper than two never occurs in the wild.
void read_steps(const json& value, const std::string& where, int depth, std::vector<std::unique_ptr<const PreTokenizer::Step>>& steps,
                bool& byte_level) {
  JsonObject object(value, where);
  const std::string type = object.text("type");
  if (byte_level) fail(ErrorCode::unsupported, "{} is {} behind ByteLevel, supported is ByteLevel as the last step", where, type);
  if (type == "Sequence") {
    if (depth == 2) fail(ErrorCode::unsupported, "{} is a Sequence at depth 3, supported is at most 2", where);
    const json& parts = object.array("pretokenizers");
    if (parts.size() > 64) fail(ErrorCode::unsupported, "{} has {} steps, allowed is at most 64", where, parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      read_steps(parts[i], fmt::format("{}.pretokenizers[{}]", where, i), depth + 1, steps, byte_level);
    }
  } else if (type == "Split") {
    steps.push_back(std::make_unique<SplitStep>(object));
  } else if (type == "Digits") {
    steps.push_back(std::make_unique<DigitsStep>(object));
  } else if (type == "ByteLevel") {
    steps.push_back(std::make_unique<ByteLevelStep>(object));
    byte_level = true;
  } else {
    fail(ErrorCode::unsupported, "{}.type is '{}', supported is Split, Digits, ByteLevel, Sequence", where, utf8_excerpt(type));
  }
  object.finish();
}
}  // namespace

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

PreTokenizer PreTokenizer::from_json(const json& value) {
  if (value.is_null()) fail(ErrorCode::unsupported, "pre_tokenizer is null, supported is one that ends in ByteLevel");
  PreTokenizer result;
  bool byte_level = false;
  read_steps(value, "pre_tokenizer", 0, result.steps_, byte_level);
  if (!byte_level) fail(ErrorCode::unsupported, "pre_tokenizer has no ByteLevel, supported is byte-level BPE only");
  return result;
}

PreTokenizer::Pieces PreTokenizer::split(std::string_view text, Arena& arena) const {
  Pieces pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const auto& step : steps_) {
    Pieces next;
    next.reserve(pieces.size());
    for (const std::string_view piece : pieces) step->split(piece, next, arena);
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace lockstep
