#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <map>

#include "text/tokenizer/regex.h"
#include "text/utf8.h"

namespace lockstep {

// A tree of bytes; the walk from a position finds the longest token that starts there.
class AddedTokens::Trie {
 public:
  void insert(std::string_view content, std::size_t token) {
    std::size_t node = 0;
    for (const char c : content) {
      const auto [edge, fresh] = edges_.try_emplace({node, c}, ends_.size());
      if (fresh) ends_.push_back(-1);
      node = edge->second;
    }
    ends_[node] = static_cast<std::int64_t>(token);
    if (!content.empty()) starts_[static_cast<unsigned char>(content.front())] = true;
  }

  // Where a token may start, at `from` or behind it.
  std::size_t next_start(std::string_view text, std::size_t from) const {
    while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) ++from;
    return from;
  }

  // The longest token that starts here and that `counts(token, length)`, and its length; length 0 when there is none.
  template <class F>
  std::pair<std::size_t, std::size_t> longest(std::string_view text, F&& counts) const {
    std::vector<std::pair<std::size_t, std::size_t>> found;  // mostly none
    std::size_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto edge = edges_.find({node, text[i]});
      if (edge == edges_.end()) break;
      node = edge->second;
      if (ends_[node] >= 0) found.emplace_back(static_cast<std::size_t>(ends_[node]), i + 1);
    }
    for (auto token = found.rbegin(); token != found.rend(); ++token)
      if (counts(token->first, token->second)) return *token;
    return {0, 0};
  }

 private:
  std::map<std::pair<std::size_t, char>, std::size_t> edges_;
  std::vector<std::int64_t> ends_ = {-1};
  bool starts_[256] = {};
};

namespace {
std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool is_word(std::string_view character) {
  static const Regex word("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}]");
  return !word.find_all(character).empty();
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0) {
    const std::size_t at = last_character(text.substr(0, begin));
    if (is_word(text.substr(at, begin - at))) return false;
  }
  return end == text.size() || !is_word(text.substr(end, utf8_front(text.substr(end)).bytes));
}
}  // namespace

AddedTokens::AddedTokens() : tries_{std::make_unique<Trie>(), std::make_unique<Trie>()} {}
AddedTokens::AddedTokens(AddedTokens&&) noexcept = default;
AddedTokens& AddedTokens::operator=(AddedTokens&&) noexcept = default;
AddedTokens::~AddedTokens() = default;

void AddedTokens::add(AddedToken token) {
  const std::size_t index = tokens_.size();
  by_id_[token.id] = index;
  by_content_[token.content] = index;
  tries_[token.normalized]->insert(token.found_as, index);
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

// The rules are those of AddedVocabulary::find_matches in Hugging Face tokenizers.
void AddedTokens::scan(std::string_view text, bool normalized, bool parse_special, const Written& written, const OnText& on_text,
                       const OnToken& on_token) const {
  const Trie& trie = *tries_[normalized];
  // Also those that are looked for only later.
  const auto written_special_inside = [&](const Trie& tokens, std::size_t begin, std::size_t end) {
    for (std::size_t from = tokens.next_start(text, begin + 1); from < end; from = tokens.next_start(text, from + 1)) {
      const auto wanted = [&](std::size_t index, std::size_t length) { return tokens_[index].special && written(tokens_[index], from, from + length); };
      if (tokens.longest(text.substr(from), wanted).second > 0) return true;
    }
    return false;
  };
  const auto counts = [&](std::size_t at, std::size_t index, std::size_t length) {
    if (!written || written(tokens_[index], at, at + length)) return true;
    if (tokens_[index].special) return false;
    return !written_special_inside(trie, at, at + length) && (normalized || !written_special_inside(*tries_[1], at, at + length));
  };
  std::size_t reported = 0;
  for (std::size_t at = trie.next_start(text, 0); at < text.size();) {
    const auto [index, length] = trie.longest(text.substr(at), [&](std::size_t i, std::size_t bytes) { return counts(at, i, bytes); });
    if (length == 0) {
      at = trie.next_start(text, at + 1);
      continue;
    }
    const AddedToken& token = tokens_[index];
    std::size_t begin = at, end = at + length;
    at = trie.next_start(text, end);
    if (token.special && !parse_special) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    while (token.lstrip && begin > reported) {
      const std::size_t character = last_character(text.substr(0, begin));
      if (character < reported || !is_white_space(utf8_front(text.substr(character)).codepoint)) break;
      begin = character;
    }
    while (token.rstrip && end < text.size()) {
      const Utf8Unit unit = utf8_front(text.substr(end));
      if (!is_white_space(unit.codepoint)) break;
      end += unit.bytes;
    }
    // White space that the token before has swallowed stays with it.
    if (token.lstrip) begin = std::max(begin, reported), end = std::max(begin, end);
    if (reported < begin) on_text(reported, begin);
    on_token(token, begin, end);
    reported = end;
  }
  if (reported < text.size()) on_text(reported, text.size());
}

}  // namespace lockstep
