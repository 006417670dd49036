#include "text/tokenizer/normalizer.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/text_pattern.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

class Normalizer::Step {
 public:
  virtual ~Step() = default;
  // False: `text` is left as it is by apply().
  virtual bool changes(std::string_view text) const { return !text.empty(); }
  virtual void apply(AlignedText& text) const = 0;
};

namespace {
constexpr std::size_t kMaxPrepend = 256, kMaxContent = 256, kMaxNormalizerSteps = 64;
// A text may grow so much; steps that each make every character hundreds would otherwise never end.
constexpr std::size_t kMaxGrowth = 32, kMaxSmall = std::size_t{64} << 10;

class FormStep : public Normalizer::Step {
 public:
  explicit FormStep(NormalForm form) : form_(form) {}
  bool changes(std::string_view text) const override { return !is_normal(form_, text); }
  void apply(AlignedText& text) const override {
    if (text.tracked) text.transform(normalization_changes(form_, text.text), 0);
    else text.text = normalize(form_, text.text);
  }

 private:
  NormalForm form_;
};

class LowercaseStep : public Normalizer::Step {
 public:
  void apply(AlignedText& text) const override { text.transform(lowercase_changes(text.text), 0); }
};

class PrependStep : public Normalizer::Step {
 public:
  explicit PrependStep(std::string front) : front_(std::move(front)) {}
  void apply(AlignedText& text) const override { text.prepend(front_); }

 private:
  std::string front_;
};

class ReplaceStep : public Normalizer::Step {
 public:
  ReplaceStep(TextPattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(AlignedText& text) const override { text.replace(pattern_.find_all(text.text), content_); }

 private:
  TextPattern pattern_;
  std::string content_;
};

class StripStep : public Normalizer::Step {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  void apply(AlignedText& text) const override {
    std::vector<CharacterChange> kept;
    std::size_t leading = 0, trailing = 0;
    bool inside = false;
    for (std::string_view rest = text.text; !rest.empty();) {
      const Utf8Unit unit = utf8_front(rest);
      rest.remove_prefix(unit.bytes);
      const bool space = is_white_space(unit.codepoint);
      trailing = space ? trailing + 1 : 0;
      inside = inside || !space;
      if (left_ && !inside) ++leading;
      else kept.push_back({unit.codepoint, 0});
    }
    if (!right_) trailing = 0;
    if (leading + trailing == 0) return;
    kept.resize(kept.size() - std::min(trailing, kept.size()));
    text.transform(kept, leading);
  }

 private:
  bool left_, right_;
};

std::optional<NormalForm> form_of(std::string_view type) {
  if (type == "NFC") return NormalForm::nfc;
  if (type == "NFD") return NormalForm::nfd;
  if (type == "NFKC") return NormalForm::nfkc;
  if (type == "NFKD") return NormalForm::nfkd;
  return std::nullopt;
}

std::string short_text(JsonObject& object, const char* key, std::size_t most) {
  std::string text = object.text(key);
  if (text.size() > most) fail(ErrorCode::corrupt_file, "{} has {} bytes, allowed is at most {}", object.path(key), text.size(), most);
  return text;
}

using Steps = std::vector<std::unique_ptr<const Normalizer::Step>>;

void read_steps(const json& value, const std::string& where, int depth, Steps& steps) {
  if (value.is_null()) return;
  JsonObject object(value, where);
  const std::string type = object.text("type");
  if (const auto form = form_of(type)) {
    steps.push_back(std::make_unique<FormStep>(*form));
  } else if (type == "Lowercase") {
    steps.push_back(std::make_unique<LowercaseStep>());
  } else if (type == "Prepend") {
    steps.push_back(std::make_unique<PrependStep>(short_text(object, "prepend", kMaxPrepend)));
  } else if (type == "Replace") {
    TextPattern pattern = TextPattern::from_json(object.object("pattern"), object.path("pattern"));
    steps.push_back(std::make_unique<ReplaceStep>(std::move(pattern), short_text(object, "content", kMaxContent)));
  } else if (type == "Strip") {
    const bool left = object.flag("strip_left"), right = object.flag("strip_right");
    steps.push_back(std::make_unique<StripStep>(left, right));
  } else if (type == "Sequence" && depth < 2) {
    const json& parts = object.array("normalizers");
    if (parts.size() > kMaxNormalizerSteps) fail(ErrorCode::unsupported, "{} has {} steps, allowed is at most {}", where, parts.size(), kMaxNormalizerSteps);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      read_steps(parts[i], fmt::format("{}.normalizers[{}]", where, i), depth + 1, steps);
    }
  } else {
    fail(ErrorCode::unsupported, "{}.type is '{}', supported is NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Sequence or null", where,
         utf8_excerpt(type));
  }
  object.finish();
  if (steps.size() > kMaxNormalizerSteps) fail(ErrorCode::unsupported, "normalizer has more than {} steps", kMaxNormalizerSteps);
}
}  // namespace

Normalizer::Normalizer() = default;
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

Normalizer Normalizer::from_json(const json& value) {
  Normalizer result;
  read_steps(value, "normalizer", 0, result.steps_);
  return result;
}

Normalizer Normalizer::of(NormalForm form) {
  Normalizer result;
  result.steps_.push_back(std::make_unique<FormStep>(form));
  return result;
}

TextPiece Normalizer::apply(const TextPiece& piece, bool tracked, PieceArena& arena) const {
  AlignedText text;
  bool changed = false;
  for (const auto& step : steps_) {
    if (!step->changes(changed ? std::string_view(text.text) : piece.text)) continue;
    if (!changed) {
      text = AlignedText::of(piece, tracked);
      text.most = kMaxGrowth * piece.text.size() + kMaxSmall;
    }
    changed = true;
    step->apply(text);
  }
  return changed ? arena.keep(std::move(text), piece.at) : piece;
}

std::string Normalizer::apply(std::string_view text) const {
  PieceArena arena;
  return std::string(apply(TextPiece{text}, false, arena).text);
}

}  // namespace lockstep
