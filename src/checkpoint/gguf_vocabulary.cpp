#include "checkpoint/gguf_vocabulary.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "checkpoint/tensor_file.h"

namespace lockstep {

namespace {
constexpr std::size_t kMostMergeWork = std::size_t{1} << 30;  // bytes looked at to find all ways to cut all tokens

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }  // inside a character of UTF-8

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}
}  // namespace

std::int32_t GgufVocabulary::id_of(const GgufFile& file, const std::string& key) const {
  return static_cast<std::int32_t>(file.integer("tokenizer.ggml." + key, 0, static_cast<std::int64_t>(tokens.size()) - 1));
}

GgufVocabulary read_gguf_vocabulary(const GgufFile& file, bool byte_level) {
  GgufVocabulary vocabulary{.tokens = file.texts("tokenizer.ggml.tokens"), .kinds = {}, .byte_level = byte_level};
  const std::size_t count = vocabulary.tokens.size();
  if (count == 0) fail(ErrorCode::corrupt_file, "'{}': 'tokenizer.ggml.tokens' has no entries", file.label());
  vocabulary.kinds.assign(count, GgufTokenKind::normal);
  if (file.has("tokenizer.ggml.token_type")) {
    const std::vector<std::int32_t> kinds = file.integers("tokenizer.ggml.token_type");
    if (kinds.size() != count)
      fail(ErrorCode::corrupt_file, "'{}': 'tokenizer.ggml.token_type' has {} entries, and there are {} tokens", file.label(), kinds.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      if (kinds[i] < 1 || kinds[i] > 6)
        fail(ErrorCode::corrupt_file, "'{}': entry {} of 'tokenizer.ggml.token_type' is {}, allowed is 1 to 6", file.label(), i, kinds[i]);
      vocabulary.kinds[i] = static_cast<GgufTokenKind>(kinds[i]);
    }
  }
  std::unordered_map<std::string_view, std::size_t> ids;
  ids.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    if (const auto [first, fresh] = ids.emplace(vocabulary.tokens[i], i); !fresh)
      fail(ErrorCode::corrupt_file, "'{}': tokens {} and {} are both {}", file.label(), first->second, i, quoted_name(vocabulary.tokens[i]));
  return vocabulary;
}

Json merges_by_score(const GgufFile& file, const GgufVocabulary& vocabulary) {
  const std::vector<float> scores = file.numbers("tokenizer.ggml.scores");
  const std::vector<std::string>& tokens = vocabulary.tokens;
  if (scores.size() != tokens.size())
    fail(ErrorCode::corrupt_file, "'{}': 'tokenizer.ggml.scores' has {} entries, and there are {} tokens", file.label(), scores.size(), tokens.size());
  // Only tokens of text are merged.
  std::unordered_map<std::string_view, std::size_t> ids;
  ids.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (const GgufTokenKind kind = vocabulary.kinds[i]; kind == GgufTokenKind::normal || kind == GgufTokenKind::user_defined || kind == GgufTokenKind::unused)
      ids.emplace(tokens[i], i);
  struct Merge {
    float score;
    std::size_t left, right, left_characters, right_characters;
  };
  std::vector<Merge> merges;
  std::size_t work = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    const auto own = ids.find(token);
    if (own == ids.end() || own->second != i) continue;
    if ((work += token.size() * token.size()) > kMostMergeWork)
      fail(ErrorCode::resource_exhausted, "'{}': the tokens are too many and too long (up to {})", file.label(), quoted_name(token));
    const std::size_t first = merges.size();
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      if (continues(token[cut])) continue;
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({scores[i], left->second, right->second, characters(left->first), characters(right->first)});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) { return std::pair(a.left, a.right) < std::pair(b.left, b.right); });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(a.score, a.left_characters, a.right_characters) > std::tuple(b.score, b.left_characters, b.right_characters);
  });
  Json pairs = Json::array();
  for (const Merge& merge : merges) pairs.push_back({tokens[merge.left], tokens[merge.right]});
  return pairs;
}

}  // namespace lockstep
