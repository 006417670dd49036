// A byte-level BPE tokenizer as a Hugging Face tokenizer.json describes it: text to ids and back, the same ids as the
// library `tokenizers` gives. A construct of the file that is not offered is refused by name, never ignored; "truncation"
// and "padding" are the exception: transformers overrides both on every call, and so do we.
// Knows no chat template and no model. Thread rule: immutable once read; one object serves any number of threads.
//   const Tokenizer t = Tokenizer::from_file("model/tokenizer.json");
//   std::vector<std::int32_t> ids = t.encode("3,7,12=36:", true);
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Tokenizer {
 public:
  static constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
  static constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

  // io, not_found, corrupt_file, unsupported or resource_exhausted.
  static Tokenizer from_file(const std::filesystem::path& path);
  static Tokenizer from_json(std::string_view json);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `text`. Broken UTF-8 becomes U+FFFD first. add_special: also what the file's post-processor puts around a text
  // (often a token that begins it). parse_special: special tokens written out in `text` become their ids, as Hugging Face
  // does; false keeps them ordinary text, for input that must not forge them.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special, bool parse_special = true) const;

  // Valid UTF-8; bytes that do not make a character become U+FFFD. An id that no token has gives nothing.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // Largest id + 1, added tokens included. A model's vocabulary may be larger (padding).
  int vocab_size() const;
  // By the text in the file: alphabet characters for ordinary tokens, plain text for added ones.
  std::optional<std::int32_t> token_id(std::string_view token) const;
  std::string token_text(std::int32_t id) const;   // the reverse; empty for an id that no token has
  std::string token_bytes(std::int32_t id) const;  // what the token adds to decoded text, maybe part of a character
  bool is_special(std::int32_t id) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace lockstep
