#include "text/tokenizer/pre_tokenizer.h"

#include <utility>

#include "base/error.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/split_behavior.h"
#include "text/tokenizer/text_pattern.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

// What a step needs to hand its pieces on.
struct SplitRun;
class PreTokenizer::Step {
 public:
  virtual ~Step() = default;
  virtual void split(const TextPiece& piece, std::size_t next, SplitRun& run) const = 0;
};

struct SplitRun {
  const std::vector<std::unique_ptr<const PreTokenizer::Step>>& steps;
  bool tracked;
  PieceArena& arena;
  PreTokenizer::Sink& sink;

  void pass(const TextPiece& piece, std::size_t step) {
    if (piece.text.empty()) return;
    if (step == steps.size()) sink.piece(piece);
    else steps[step]->split(piece, step + 1, *this);
  }
};

namespace {
constexpr std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Rust's \w has the join controls, Ruby's has not.
#define LOCKSTEP_RUST_WORD R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})"
constexpr std::string_view kWords = "[" LOCKSTEP_RUST_WORD "]+|[^\\s" LOCKSTEP_RUST_WORD "]+";
#undef LOCKSTEP_RUST_WORD
constexpr std::size_t kMaxSplitSteps = 64;

class SplitStep : public PreTokenizer::Step {
 public:
  SplitStep(TextPattern pattern, Behavior behavior, bool invert) : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  SplitStep(std::string_view regex, Behavior behavior, bool invert = false) : SplitStep(TextPattern(Regex(regex)), behavior, invert) {}

  void split(const TextPiece& piece, std::size_t next, SplitRun& run) const override {
    split_text(
        behavior_, piece.text.size(), invert_, [&](auto&& on_match) { pattern_.for_each(piece.text, on_match); },
        [&](const TextRange& range) { run.pass(piece.part(range.begin, range.end), next); });
  }

 private:
  TextPattern pattern_;
  Behavior behavior_;
  bool invert_;
};

class ByteLevelStep : public PreTokenizer::Step {
 public:
  ByteLevelStep(bool prefix_space, bool use_regex) : prefix_space_(prefix_space) {
    if (use_regex) split_ = std::make_unique<SplitStep>(kGpt2Pattern, Behavior::isolated);
  }

  void split(const TextPiece& piece, std::size_t next, SplitRun& run) const override {
    TextPiece spaced = piece;
    if (prefix_space_ && piece.text.front() != ' ') {
      AlignedText text = AlignedText::of(piece, run.tracked);
      text.prepend(" ");
      spaced = run.arena.keep(std::move(text), piece.at);
    }
    if (split_) split_->split(spaced, next, run);
    else run.pass(spaced, next);
  }

 private:
  bool prefix_space_;
  std::unique_ptr<SplitStep> split_;
};

class MetaspaceStep : public PreTokenizer::Step {
 public:
  explicit MetaspaceStep(Metaspace settings) : settings_(std::move(settings)) {}

  void split(const TextPiece& piece, std::size_t next, SplitRun& run) const override {
    const std::string& mark = settings_.replacement;
    AlignedText text = AlignedText::of(piece, run.tracked);
    std::vector<TextRange> spaces;
    for (std::size_t at = text.text.find(' '); at != std::string::npos; at = text.text.find(' ', at + 1)) spaces.push_back({at, at + 1});
    text.replace(spaces, mark);
    const bool wanted = settings_.prepend == Metaspace::Prepend::always || (settings_.prepend == Metaspace::Prepend::first && piece.at == 0);
    if (wanted && !text.text.starts_with(mark)) text.prepend(mark);
    const TextPiece marked = run.arena.keep(std::move(text), piece.at);
    if (!settings_.split) return run.pass(marked, next);
    const auto for_each_mark = [&](auto&& on_match) {
      for (std::size_t at = marked.text.find(mark); at != std::string_view::npos; at = marked.text.find(mark, at + mark.size())) {
        on_match(TextRange{at, at + mark.size()});
      }
    };
    split_text(Behavior::merged_with_next, marked.text.size(), false, for_each_mark,
               [&](const TextRange& range) { run.pass(marked.part(range.begin, range.end), next); });
  }

 private:
  Metaspace settings_;
};

struct Reader {
  std::vector<std::unique_ptr<const PreTokenizer::Step>>& steps;
  bool& byte_level;
  bool& first_only;

  // A Sequence inside a Sequence only adds its steps; deeper than two never occurs in the wild.
  void read(const json& value, const std::string& where, int depth) {
    JsonObject object(value, where);
    const std::string type = object.text("type");
    if (byte_level) fail(ErrorCode::unsupported, "{} is {} behind ByteLevel, supported is ByteLevel as the last step", where, utf8_excerpt(type));
    if (type == "Sequence") {
      if (depth == 2) fail(ErrorCode::unsupported, "{} is a Sequence at depth 3, supported is at most 2", where);
      const json& parts = object.array("pretokenizers");
      if (parts.size() > kMaxSplitSteps) fail(ErrorCode::unsupported, "{} has {} steps, allowed is at most {}", where, parts.size(), kMaxSplitSteps);
      for (std::size_t i = 0; i < parts.size(); ++i) read(parts[i], fmt::format("{}.pretokenizers[{}]", where, i), depth + 1);
    } else {
      read_step(object, type);
    }
    object.finish();
    if (steps.size() > kMaxSplitSteps) fail(ErrorCode::unsupported, "pre_tokenizer has more than {} steps", kMaxSplitSteps);
  }

  void read_step(JsonObject& object, const std::string& type) {
    if (type == "Split") {
      TextPattern pattern = TextPattern::from_json(object.object("pattern"), object.path("pattern"));
      const Behavior behavior = read_behavior(object, "behavior");
      steps.push_back(std::make_unique<SplitStep>(std::move(pattern), behavior, object.flag("invert", false)));
    } else if (type == "Digits") {
      const bool each = object.flag("individual_digits", false);
      steps.push_back(std::make_unique<SplitStep>(each ? "\\p{N}" : "\\p{N}+", Behavior::isolated));
    } else if (type == "Whitespace") {
      steps.push_back(std::make_unique<SplitStep>(kWords, Behavior::removed, true));
    } else if (type == "WhitespaceSplit") {
      steps.push_back(std::make_unique<SplitStep>("\\s+", Behavior::removed));
    } else if (type == "Punctuation") {
      steps.push_back(std::make_unique<SplitStep>("[\\p{P}$+<=>^`|~]", read_behavior(object, "behavior", Behavior::isolated)));
    } else if (type == "Metaspace") {
      Metaspace settings = Metaspace::read(object);
      first_only = first_only || settings.prepend == Metaspace::Prepend::first;
      steps.push_back(std::make_unique<MetaspaceStep>(std::move(settings)));
    } else if (type == "ByteLevel") {
      const bool prefix = object.flag("add_prefix_space", true), regex = object.flag("use_regex", true);
      object.flag("trim_offsets", true);  // the post-processor's concern
      steps.push_back(std::make_unique<ByteLevelStep>(prefix, regex));
      byte_level = true;
    } else {
      fail(ErrorCode::unsupported,
           "{}.type is '{}', supported is Split, Digits, Whitespace, WhitespaceSplit, Punctuation, Metaspace, ByteLevel, Sequence or null", object.where(),
           utf8_excerpt(type));
    }
  }
};
}  // namespace

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

PreTokenizer PreTokenizer::from_json(const json& value) {
  PreTokenizer result;
  if (!value.is_null()) Reader{result.steps_, result.byte_level_, result.first_only_}.read(value, "pre_tokenizer", 0);
  return result;
}

PreTokenizer PreTokenizer::of_pattern(std::string_view pattern) {
  PreTokenizer result;
  result.steps_.push_back(std::make_unique<SplitStep>(pattern, Behavior::isolated));
  result.byte_level_ = true;
  return result;
}

void PreTokenizer::split(const TextPiece& piece, bool tracked, PieceArena& arena, Sink& sink) const { SplitRun{steps_, tracked, arena, sink}.pass(piece, 0); }

}  // namespace lockstep
