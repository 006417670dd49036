// The entries of "added_tokens": texts that are matched in the input before any splitting, special ones among them.
//   tokens.scan(text, /*normalized=*/false, parse_special, [&](size_t begin, size_t end) {...},
//               [&](const AddedToken& token, size_t begin, size_t end) {...});
// Knows ids but no merges. Thread rule: immutable once filled.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // found only where no word character touches it
  bool lstrip = false;       // swallows white space to its left
  bool rstrip = false;
  bool normalized = false;  // looked for after normalising the text
  bool special = false;     // left out of decoded text on request
  std::string found_as;     // what is looked for and shown: the content, normalised when the token is
};

class AddedTokens {
 public:
  AddedTokens();
  AddedTokens(AddedTokens&&) noexcept;
  AddedTokens& operator=(AddedTokens&&) noexcept;
  ~AddedTokens();

  void add(AddedToken token);
  const AddedToken* find(std::int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

  using OnText = std::function<void(std::size_t begin, std::size_t end)>;
  using OnToken = std::function<void(const AddedToken& token, std::size_t begin, std::size_t end)>;
  // Cuts `text` at the tokens of one kind (leftmost, then longest) and reports parts in order, in bytes. With parse_special
  // false, special tokens are ordinary text: what a user typed can then never become one.
  void scan(std::string_view text, bool normalized, bool parse_special, const OnText& on_text, const OnToken& on_token) const {
    scan(text, normalized, parse_special, nullptr, on_text, on_token);
  }
  // With `written`, a special token counts only if `written` returns true for it; a token of any kind that fails this is passed over in favour of one
  // that begins inside it and passes, or of a shorter one. Null: all count.
  using Written = std::function<bool(const AddedToken& token, std::size_t begin, std::size_t end)>;
  void scan(std::string_view text, bool normalized, bool parse_special, const Written& written, const OnText& on_text, const OnToken& on_token) const;

 private:
  class Trie;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::int32_t, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  std::unique_ptr<Trie> tries_[2];  // looked for before normalising, after
};

}  // namespace lockstep
