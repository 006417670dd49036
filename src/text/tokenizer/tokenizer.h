// A BPE tokenizer, read from a Hugging Face tokenizer.json or a tiktoken rank file: text to ids and back, with the same ids,
// offsets and text as the libraries `tokenizers` and `tiktoken`.
//   const Tokenizer t = Tokenizer::from_folder("models/countdown-glm");
//   std::vector<std::int32_t> ids = t.encode("3,7,12=36:", true);
// An unsupported construct of the file is refused by name, never ignored, except "truncation" and "padding": transformers overrides both on every
// call, and so do we. Knows no chat template and no model. Thread rule: immutable once read; one object serves any number of threads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/folder_files.h"
#include "text/text_range.h"
#include "text/tokenizer/post_processor.h"

namespace lockstep {

// What a rank file does not contain.
struct TiktokenSettings {
  std::string pattern;                                         // splits text into pieces
  std::vector<std::pair<std::string, std::int32_t>> specials;  // in any order
  bool nfc = false;                                            // composes the text first
  std::vector<std::int32_t> prefix;                            // what add_special puts in front
};

struct OffsetEncoding {
  std::vector<std::int32_t> ids;
  std::vector<CharacterRange> offsets;  // one per token
};

class Tokenizer {
 public:
  static constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
  static constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

  // io, not_found, corrupt_file, unsupported or resource_exhausted.
  static Tokenizer from_file(const std::filesystem::path& path);  // a tokenizer.json
  static Tokenizer from_json(std::string_view json);
  // The text of a rank file: lines of base64 and a rank.
  static Tokenizer from_tiktoken(std::string_view ranks, const TiktokenSettings& settings);
  // tokenizer.json, or else a rank file and its tokenizer_config.json.
  static Tokenizer from_folder(const FolderFiles& files);
  static Tokenizer from_folder(const std::filesystem::path& folder);
  // Whether from_folder would find a file to read.
  static bool in_folder(const FolderFiles& files);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `text`. Broken UTF-8 becomes U+FFFD first. add_special: also what the file's post-processor puts around a text
  // (often a token that begins it). parse_special: special tokens written out in `text` become their ids, as Hugging Face
  // does; false keeps them ordinary text, for input that must not forge them.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special, bool parse_special = true) const;
  // The ids of encode(text, false) without forged tokens. A special token counts only if all of its text is outside of `untrusted`: untrusted text
  // never becomes one or a part of one, even where the normalizer or merging would make one of it, and it never hides a token that was written next
  // to it. `text` is valid UTF-8 (else invalid_argument); `untrusted` are byte ranges of it, ascending and disjoint.
  std::vector<std::int32_t> encode_guarded(std::string_view text, std::span<const TextRange> untrusted) const;
  // Also which characters of `text` each token stands for (of the text after U+FFFD was put in). Tokens that cut a character
  // all count it whole; what a normalizer joins, replaces or puts in front counts as in Hugging Face: a composed character
  // has the range of its first part, a character put in front that of the one behind it. Tokens of add_special have 0 to 0.
  OffsetEncoding encode_with_offsets(std::string_view text, bool add_special, bool parse_special = true) const;

  // Valid UTF-8; bytes that do not make a character become U+FFFD. An id that no token has gives nothing.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // Largest id + 1, added tokens included. A model's vocabulary may be larger (padding).
  int vocab_size() const;
  // By the text in the file: alphabet characters for ordinary byte-level tokens, plain text for added ones.
  std::optional<std::int32_t> token_id(std::string_view token) const;
  std::string token_text(std::int32_t id) const;   // the reverse; empty for an id that no token has
  std::string token_bytes(std::int32_t id) const;  // what the token adds to decoded text, maybe part of a character
  bool is_special(std::int32_t id) const;

  struct State;  // tokenizer_state.h
  const State& state() const { return *state_; }

 private:
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace lockstep
