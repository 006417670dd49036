#include "text/tokenizer/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/tokenizer_state.h"
#include "text/tokenizer/unicode_forms.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
// Byte positions of a text as characters, by the rules of Hugging Face's converter.
class CharacterIndex {
 public:
  explicit CharacterIndex(std::string_view text) : size_(text.size()) {
    std::size_t i = 0;
    while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
    if (i == text.size()) return;  // every byte is a character
    characters_.reserve(text.size());
    std::uint32_t character = 0;
    for (const char c : text) {
      if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++character;
      characters_.push_back(character - 1);
    }
  }

  CharacterRange of(const TextRange& bytes) const {
    if (bytes.begin >= size_) return {bytes.begin, bytes.end};
    const std::size_t begin = at(bytes.begin);
    if (bytes.end < size_) return {begin, at(bytes.end)};
    return {begin, bytes.end > 0 && bytes.end - 1 < size_ ? at(bytes.end - 1) + 1 : begin + 2};
  }

 private:
  std::size_t at(std::size_t byte) const { return characters_.empty() ? byte : characters_[byte]; }
  std::size_t size_;
  std::vector<std::uint32_t> characters_;
};

// One text on its way to tokens: cut at added tokens, normalised, cut again, split into pieces, merged.
class Encoder : public PreTokenizer::Sink {
 public:
  Encoder(const Tokenizer::State& state, bool parse_special, bool tracked)
      : state_(state), parse_special_(parse_special), tracked_(tracked || state.pre_tokenizer.looks_at_origins(!state.normalizer.empty())) {}
  virtual ~Encoder() = default;

  void run(std::string_view text, const AddedTokens::Written& raw = nullptr) {
    const TextPiece whole{text};
    state_.added.scan(
        text, false, parse_special_, raw, [&](std::size_t begin, std::size_t end) { part(whole.part(begin, end)); },
        [&](const AddedToken& token, std::size_t begin, std::size_t end) { added(token, whole, begin, end); });
  }

 protected:
  virtual void added(const AddedToken& token, const TextPiece& in, std::size_t begin, std::size_t end) = 0;
  // What stands between the tokens that are looked for first.
  virtual void part(const TextPiece& part) { normalized(part); }
  // Which tokens count in `changed`, that is `part` normalized.
  virtual AddedTokens::Written written(const TextPiece& /*part*/, const TextPiece& /*changed*/) const { return nullptr; }
  const Tokenizer::State& state_;
  PieceArena arena_;
  const bool parse_special_;

  void normalized(const TextPiece& part) {
    const TextPiece changed = state_.normalizer.apply(part, tracked_, arena_);
    state_.added.scan(
        changed.text, true, parse_special_, written(part, changed),
        [&](std::size_t begin, std::size_t end) { state_.pre_tokenizer.split(changed.part(begin, end), tracked_, arena_, *this); },
        [&](const AddedToken& token, std::size_t begin, std::size_t end) { added(token, changed, begin, end); });
  }

 private:
  bool tracked_;
};

class IdEncoder final : public Encoder {
 public:
  IdEncoder(const Tokenizer::State& state, bool parse_special, std::vector<std::int32_t>& ids) : Encoder(state, parse_special, false), ids_(ids) {}
  void piece(const TextPiece& piece) override {
    if (parse_special_ || state_.mergeable_specials.empty()) state_.bpe.encode_piece(piece.text, ids_);
    else state_.bpe.encode_piece_without(state_.mergeable_specials, piece.text, ids_);
  }
  void added(const AddedToken& token, const TextPiece&, std::size_t, std::size_t) override { ids_.push_back(token.id); }

 private:
  std::vector<std::int32_t>& ids_;
};

// Encodes a text that is partly untrusted (encode_guarded).
class GuardedEncoder final : public Encoder {
 public:
  GuardedEncoder(const Tokenizer::State& state, std::string_view text, std::span<const TextRange> untrusted, std::vector<std::int32_t>& ids)
      : Encoder(state, true, !state.normalizer.empty() || !state.mergeable_specials.empty()), text_(text), untrusted_(untrusted), ids_(ids) {}

  void run() {
    Encoder::run(text_, [this](const AddedToken&, std::size_t begin, std::size_t end) { return trusted(begin, end); });
  }
  void piece(const TextPiece& piece) override {
    const Bpe::Barred& barred = state_.mergeable_specials;
    const TextRange from = barred.empty() ? TextRange{0, 0} : piece.origin(0, piece.text.size());
    if (trusted(from.begin, from.end)) state_.bpe.encode_piece(piece.text, ids_);
    else state_.bpe.encode_piece_without(barred, piece.text, ids_);
  }
  void added(const AddedToken& token, const TextPiece&, std::size_t, std::size_t) override { ids_.push_back(token.id); }

 private:
  std::span<const TextRange>::iterator range_behind(std::size_t at) const {
    return std::upper_bound(untrusted_.begin(), untrusted_.end(), at, [](std::size_t byte, const TextRange& r) { return byte < r.end; });
  }
  bool trusted(std::size_t begin, std::size_t end) const {
    const auto range = range_behind(begin);
    return range == untrusted_.end() || range->begin >= end;
  }

  // A combining character that begins what a user wrote would join the last character of the token before: that token is cut off.
  void part(const TextPiece& whole) override {
    std::size_t begin = 0;
    for (auto range = range_behind(whole.at); range != untrusted_.end() && range->begin < whole.at + whole.text.size(); ++range) {
      if (range->begin <= whole.at + begin) continue;
      const Utf8Unit first = utf8_front(text_.substr(range->begin));
      if (!joins_the_one_before(first.codepoint)) continue;
      const std::size_t border = range->begin - whole.at;
      const std::string_view before = whole.text.substr(begin, border - begin);
      const auto ends = [&](const AddedToken& t) {
        if (!t.special || !t.normalized || !before.ends_with(t.content)) return false;
        const std::size_t start = range->begin - t.content.size();
        return trusted(start, range->begin) &&
               state_.normalizer.apply(text_.substr(start, t.content.size() + first.bytes)).find(t.found_as) == std::string::npos;
      };
      if (std::none_of(state_.added.all().begin(), state_.added.all().end(), ends)) continue;
      normalized(whole.part(begin, border));
      begin = border;
    }
    if (begin < whole.text.size()) normalized(whole.part(begin, whole.text.size()));
  }

  AddedTokens::Written written(const TextPiece& part, const TextPiece& changed) const override {
    return [this, &part, &changed](const AddedToken& token, std::size_t begin, std::size_t end) {
      if (!changed.origins) return trusted(changed.at + begin, changed.at + end);
      // What the match was made of: also what the normalizer dropped or joined beside it.
      TextRange from{part.at, part.at + part.text.size()};
      if (begin > 0) from.begin = std::min(changed.origins[begin - 1].end, changed.origins[begin].begin);
      if (end < changed.text.size()) from.end = std::max(changed.origins[end - 1].end, changed.origins[end].begin);
      return says(token, from);
    };
  }
  // Whether one stretch of trusted text in `from` is the token by itself. The template may write a token as its normalized form
  // has it or another; white space that a token's form takes in (a prefix of the normalizer) may be the user's.
  bool says(const AddedToken& token, TextRange from) const {
    for (auto range = range_behind(from.begin);; ++range) {
      const std::size_t end = range == untrusted_.end() ? from.end : std::min(range->begin, from.end);
      if (from.begin < end) {
        const std::string_view own = text_.substr(from.begin, end - from.begin);
        if (own.find(token.content) != std::string_view::npos || state_.normalizer.apply(own).find(token.found_as) != std::string::npos) return true;
      }
      if (range == untrusted_.end() || range->end >= from.end) return false;
      from.begin = range->end;
    }
  }

  std::string_view text_;
  std::span<const TextRange> untrusted_;
  std::vector<std::int32_t>& ids_;
};

class OffsetEncoder final : public Encoder {
 public:
  OffsetEncoder(const Tokenizer::State& state, bool parse_special, std::string_view text) : Encoder(state, parse_special, true), index_(text) {}

  void piece(const TextPiece& piece) override {
    ids_.clear(), bytes_.clear();
    if (parse_special_ || state_.mergeable_specials.empty()) state_.bpe.encode_piece(piece.text, ids_, bytes_);
    else state_.bpe.encode_piece_without(state_.mergeable_specials, piece.text, ids_, &bytes_);
    std::size_t at = 0;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const std::size_t end = at + bytes_[i];
      tokens.push_back({ids_[i], state_.bpe.vocabulary().text_of(ids_[i]), index_.of(piece.origin(at, end))});
      at = end;
    }
  }
  void added(const AddedToken& token, const TextPiece& in, std::size_t begin, std::size_t end) override {
    tokens.push_back({token.id, in.text.substr(begin, end - begin), index_.of(in.origin(begin, end))});
  }
  std::vector<PostProcessor::Token> tokens;

 private:
  CharacterIndex index_;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint32_t> bytes_;
};

std::string_view checked(std::string_view text, std::string& clean) {
  if (text.size() > Tokenizer::kMaxTextBytes) {
    fail(ErrorCode::invalid_argument, "text has {} bytes, allowed is at most {}", text.size(), Tokenizer::kMaxTextBytes);
  }
  if (utf8_valid(text)) return text;
  clean = utf8_lossy(text);
  return clean;
}
}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  std::string clean;
  text = checked(text, clean);
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 16);
  const PostProcessor& around = state_->post_processor;
  if (add_special) ids = around.prefix();
  IdEncoder(*state_, parse_special, ids).run(text);
  if (add_special) ids.insert(ids.end(), around.suffix().begin(), around.suffix().end());
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_guarded(std::string_view text, std::span<const TextRange> untrusted) const {
  std::string clean;
  if (checked(text, clean).data() != text.data()) fail(ErrorCode::invalid_argument, "a text with ranges is not valid UTF-8");
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 16);
  GuardedEncoder(*state_, text, untrusted, ids).run();
  return ids;
}

OffsetEncoding Tokenizer::encode_with_offsets(std::string_view text, bool add_special, bool parse_special) const {
  std::string clean;
  text = checked(text, clean);
  OffsetEncoder encoder(*state_, parse_special, text);
  encoder.run(text);
  state_->post_processor.apply(encoder.tokens, add_special, [&](std::int32_t id) { return state_->text_of(id); });
  OffsetEncoding result;
  for (const PostProcessor::Token& token : encoder.tokens) {
    result.ids.push_back(token.id);
    result.offsets.push_back(token.offsets);
  }
  return result;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string text;
  Decoder::Stream stream(state_->decoder);
  for (const std::int32_t id : ids) {
    const std::string_view token = state_->text_of(id);
    if (token.empty() || (skip_special && is_special(id))) continue;
    stream.push(token, text);
  }
  stream.finish(text);
  return text;
}

int Tokenizer::vocab_size() const { return state_->id_limit; }

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
  if (const AddedToken* added = state_->added.find(token)) return added->id;
  return state_->bpe.id_of(token);
}

std::string Tokenizer::token_text(std::int32_t id) const {
  if (const AddedToken* added = state_->added.find(id)) return added->content;
  return std::string(state_->bpe.vocabulary().text_of(id));
}

std::string Tokenizer::token_bytes(std::int32_t id) const { return state_->decoder.token_bytes(state_->text_of(id)); }

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* added = state_->added.find(id);
  return added && added->special;
}

}  // namespace lockstep
