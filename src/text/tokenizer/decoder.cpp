#include "text/tokenizer/decoder.h"

#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/text_pattern.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

// One decoder on its way through a text. Tokens come in parts: `closes` ends one. Behind Fuse and ByteLevel there is one
// token, which closes at the end of the text.
class Decoder::Stage {
 public:
  using Emit = std::function<void(std::string_view part, bool closes)>;
  virtual ~Stage() = default;
  virtual std::unique_ptr<Stage> fresh() const = 0;
  virtual void push(std::string_view part, bool closes, const Emit& emit) = 0;
  virtual void finish(const Emit&) {}
  // What it makes of one token's bytes, neighbours aside.
  virtual std::string alone(std::string token) const { return token; }
  virtual bool fuses() const { return false; }
};

namespace {
using Stage = Decoder::Stage;
constexpr std::size_t kMaxStages = 32, kMaxStripContent = 256;

// A stage that needs a token whole.
class TokenStage : public Stage {
 public:
  void push(std::string_view part, bool closes, const Emit& emit) final {
    if (held_.empty() && closes) return token(part, emit);
    held_ += part;
    if (closes) token(std::exchange(held_, {}), emit);
  }

 protected:
  virtual void token(std::string_view text, const Emit& emit) = 0;

 private:
  std::string held_;
};

std::string bytes_of(std::string_view token) { return alphabet_to_bytes(token).value_or(std::string(token)); }

class ByteLevelStage : public TokenStage {
 public:
  std::unique_ptr<Stage> fresh() const override { return std::make_unique<ByteLevelStage>(); }
  void token(std::string_view text, const Emit& emit) override {
    bytes_ += bytes_of(text);
    std::size_t certain = 0;
    while (certain < bytes_.size()) {
      const Utf8Unit unit = utf8_front(std::string_view(bytes_).substr(certain));
      if (unit.kind == Utf8Unit::Kind::incomplete) break;
      certain += unit.bytes;
    }
    if (certain == 0) return;
    emit(utf8_lossy(std::string_view(bytes_).substr(0, certain)), false);
    bytes_.erase(0, certain);
  }
  void finish(const Emit& emit) override { emit(utf8_lossy(std::exchange(bytes_, {})), true); }
  std::string alone(std::string token) const override { return bytes_of(token); }
  bool fuses() const override { return true; }

 private:
  std::string bytes_;  // may still become a character
};

class FuseStage : public Stage {
 public:
  std::unique_ptr<Stage> fresh() const override { return std::make_unique<FuseStage>(); }
  void push(std::string_view part, bool, const Emit& emit) override { emit(part, false); }
  void finish(const Emit& emit) override { emit("", true); }
  bool fuses() const override { return true; }
};

class ReplaceStage : public TokenStage {
 public:
  ReplaceStage(std::shared_ptr<const TextPattern> pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::unique_ptr<Stage> fresh() const override { return std::make_unique<ReplaceStage>(pattern_, content_); }
  void token(std::string_view text, const Emit& emit) override { emit(replaced(text), true); }
  std::string alone(std::string token) const override { return replaced(token); }

 private:
  std::string replaced(std::string_view text) const {
    if (text.empty()) return "";
    std::string result;
    std::size_t at = 0;
    pattern_->for_each(text, [&](const TextRange& match) {
      result.append(text, at, match.begin - at);
      result += content_;
      at = match.end;
    });
    return result.append(text, at);
  }
  std::shared_ptr<const TextPattern> pattern_;
  std::string content_;
};

// <0xE4>: the byte. What stands between is read as Rust's from_str_radix does, which takes a plus.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits.front() == '+') digits.remove_prefix(1);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<char>(value);
}

// A run of byte tokens is text when all of it is valid UTF-8, and else one U+FFFD a byte: so nothing of it is certain
// before it ends.
class ByteFallbackStage : public TokenStage {
 public:
  std::unique_ptr<Stage> fresh() const override { return std::make_unique<ByteFallbackStage>(); }
  void token(std::string_view text, const Emit& emit) override {
    if (const auto byte = fallback_byte(text)) {
      run_ += *byte;
      return;
    }
    finish(emit);
    emit(text, true);
  }
  void finish(const Emit& emit) override {
    if (run_.empty()) return;
    const std::string run = std::exchange(run_, {});
    if (utf8_valid(run)) return emit(run, true);
    for (std::size_t i = 0; i < run.size(); ++i) emit("\xEF\xBF\xBD", true);
  }
  std::string alone(std::string token) const override {
    const auto byte = fallback_byte(token);
    return byte ? std::string(1, *byte) : token;
  }

 private:
  std::string run_;
};

// Takes up to `start` characters off the front of each token and `stop` off its end, while they are `content`.
class StripStage : public Stage {
 public:
  StripStage(std::string content, std::size_t start, std::size_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  std::unique_ptr<Stage> fresh() const override { return std::make_unique<StripStage>(content_, start_, stop_); }

  void push(std::string_view part, bool closes, const Emit& emit) override {
    while (at_front_ && stripped_ < start_ && part.starts_with(content_)) {
      part.remove_prefix(content_.size());
      ++stripped_;
    }
    if (!part.empty()) at_front_ = false;
    std::string text;
    // The last `stop_` of the content characters at the end wait for what follows.
    std::size_t end = part.size(), trailing = 0;
    while (stop_ > 0 && part.substr(0, end).ends_with(content_)) {
      end -= content_.size();
      ++trailing;
    }
    if (end > 0) {
      for (; waiting_ > 0; --waiting_) text += content_;
      text += part.substr(0, end);
    }
    waiting_ += trailing;
    for (; waiting_ > stop_; --waiting_) text += content_;
    if (closes) {
      waiting_ = stripped_ = 0;
      at_front_ = true;
    }
    if (closes || !text.empty()) emit(text, closes);
  }

  std::string alone(std::string token) const override {
    std::string result;
    StripStage(content_, start_, stop_).push(token, true, [&](std::string_view part, bool) { result += part; });
    return result;
  }

 private:
  std::string content_;
  std::size_t start_, stop_, stripped_ = 0, waiting_ = 0;
  bool at_front_ = true;
};

class MetaspaceStage : public Stage {
 public:
  explicit MetaspaceStage(Metaspace settings) : settings_(std::move(settings)) {}
  std::unique_ptr<Stage> fresh() const override { return std::make_unique<MetaspaceStage>(settings_); }
  void push(std::string_view part, bool closes, const Emit& emit) override {
    emit(replaced(part, first_ && settings_.prepend != Metaspace::Prepend::never ? "" : " "), closes);
    if (closes) first_ = false;
  }
  void finish(const Emit&) override { first_ = true; }
  std::string alone(std::string token) const override { return replaced(token, " "); }

 private:
  std::string replaced(std::string_view text, std::string_view with) const {
    std::string result;
    std::size_t at = 0;
    for (std::size_t found; (found = text.find(settings_.replacement, at)) != std::string_view::npos;) {
      result.append(text, at, found - at).append(with);
      at = found + settings_.replacement.size();
    }
    return result.append(text, at);
  }
  Metaspace settings_;
  bool first_ = true;
};

void read_stages(const json& value, const std::string& where, int depth, std::vector<std::unique_ptr<const Stage>>& stages) {
  JsonObject object(value, where);
  const std::string type = object.text("type");
  if (type == "Sequence" && depth < 2) {
    const json& parts = object.array("decoders");
    if (parts.size() > kMaxStages) fail(ErrorCode::unsupported, "{} has {} steps, allowed is at most {}", where, parts.size(), kMaxStages);
    for (std::size_t i = 0; i < parts.size(); ++i) read_stages(parts[i], fmt::format("{}.decoders[{}]", where, i), depth + 1, stages);
  } else if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) object.flag(key, true);  // concern encoding
    stages.push_back(std::make_unique<ByteLevelStage>());
  } else if (type == "Fuse") {
    stages.push_back(std::make_unique<FuseStage>());
  } else if (type == "ByteFallback") {
    stages.push_back(std::make_unique<ByteFallbackStage>());
  } else if (type == "Replace") {
    auto pattern = std::make_shared<TextPattern>(TextPattern::from_json(object.object("pattern"), object.path("pattern")));
    std::string content = object.text("content");
    if (content.size() > kMaxStripContent) {
      fail(ErrorCode::corrupt_file, "{} has {} bytes, allowed is at most {}", object.path("content"), content.size(), kMaxStripContent);
    }
    stages.push_back(std::make_unique<ReplaceStage>(std::move(pattern), std::move(content)));
  } else if (type == "Strip") {
    std::string content = object.text("content");
    if (content.empty() || utf8_front(content).bytes != content.size()) {
      fail(ErrorCode::corrupt_file, "{} is '{}', allowed is one character", object.path("content"), utf8_excerpt(content));
    }
    const auto start = static_cast<std::size_t>(object.integer("start", 0, 1 << 20));
    const auto stop = static_cast<std::size_t>(object.integer("stop", 0, 1 << 20));
    stages.push_back(std::make_unique<StripStage>(std::move(content), start, stop));
  } else if (type == "Metaspace") {
    stages.push_back(std::make_unique<MetaspaceStage>(Metaspace::read(object)));
  } else {
    fail(ErrorCode::unsupported, "{}.type is '{}', supported is ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence", where, utf8_excerpt(type));
  }
  object.finish();
  if (stages.size() > kMaxStages) fail(ErrorCode::unsupported, "decoder has more than {} steps", kMaxStages);
}

void push_from(std::vector<std::unique_ptr<Stage>>& stages, std::size_t at, std::string_view part, bool closes, std::string& out) {
  if (at == stages.size()) {
    out += part;
    return;
  }
  stages[at]->push(part, closes, [&](std::string_view p, bool c) { push_from(stages, at + 1, p, c, out); });
}
}  // namespace

Decoder::Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Decoder Decoder::from_json(const json& value) {
  // Hugging Face joins tokens by spaces then, which is no text that anybody meant.
  if (value.is_null()) fail(ErrorCode::unsupported, "decoder is null, supported is ByteLevel, Metaspace or a Sequence");
  Decoder decoder;
  read_stages(value, "decoder", 0, decoder.stages_);
  return decoder;
}

Decoder Decoder::byte_level() {
  Decoder decoder;
  decoder.stages_.push_back(std::make_unique<ByteLevelStage>());
  return decoder;
}

std::string Decoder::token_bytes(std::string_view token) const {
  std::string bytes(token);
  for (const auto& stage : stages_) {
    bytes = stage->alone(std::move(bytes));
    if (stage->fuses()) break;  // what follows sees the whole text
  }
  return bytes;
}

Decoder::Stream::Stream(const Decoder& decoder) {
  for (const auto& stage : decoder.stages_) stages_.push_back(stage->fresh());
}
Decoder::Stream::Stream(Stream&&) noexcept = default;
Decoder::Stream& Decoder::Stream::operator=(Stream&&) noexcept = default;
Decoder::Stream::~Stream() = default;

void Decoder::Stream::push(std::string_view token, std::string& out) { push_from(stages_, 0, token, true, out); }

void Decoder::Stream::finish(std::string& out) {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    stages_[i]->finish([&](std::string_view p, bool c) { push_from(stages_, i + 1, p, c, out); });
  }
}

}  // namespace lockstep
