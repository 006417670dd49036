// Any bytes as a JSON schema: refused, or a grammar along which a random walk is never stuck, agrees with its masks, comes to
// an end by the shortest way (unless counts of items or characters forbid it for long), and ends in valid JSON.
// sources: src/text/*.cpp src/text/tokenizer/*.cpp src/text/grammar/*.cpp src/text/message/*.cpp
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "text/grammar/token_grammar.h"

using namespace lockstep;
using nlohmann::ordered_json;

namespace {
std::shared_ptr<const TokenBytes> make_tokens() {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  for (const char* piece :
       {"\": \"", "\", \"", "{\"", "\"}", "\"]", "true", "null", "}}", "]]", "\\ud83d\\ude00", "[[", ", ", "12", ".5", "e+", "\xC3\xA9", "ab", "}]}", ""})
    bytes.emplace_back(piece);
  bytes.emplace_back();
  const auto end = static_cast<std::int32_t>(bytes.size()) - 1;
  return std::make_shared<const TokenBytes>(std::move(bytes), std::vector<std::int32_t>{end});
}

// Of one input: they keep masks, and libFuzzer takes for a leak what an input leaves behind.
std::shared_ptr<const TokenBytes> current_tokens;
const std::shared_ptr<const TokenBytes>& tokens() { return current_tokens; }

std::vector<std::int32_t> allowed(GrammarMatcher& matcher) {
  std::vector<std::uint32_t> words(tokens()->words(), 0);
  matcher.allowed(words);
  std::vector<std::int32_t> list;
  for (std::int32_t t = 0; t < tokens()->size(); ++t)
    if (words[static_cast<std::size_t>(t / 32)] >> t % 32 & 1) list.push_back(t);
  return list;
}

// Counts that a schema asks for lengthen what the shortest end says.
bool counts(const ordered_json& value) {
  if (value.is_object())
    for (auto it = value.begin(); it != value.end(); ++it)
      if (it.key() == "minItems" || it.key() == "minLength" || counts(*it)) return true;
  if (value.is_array())
    for (const ordered_json& inner : value)
      if (counts(inner)) return true;
  return false;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ordered_json schema = ordered_json::parse(data, data + size, nullptr, false);
  if (schema.is_discarded()) return 0;
  current_tokens = make_tokens();
  const std::unique_ptr<void, void (*)(void*)> end_of_input(&current_tokens, [](void*) { current_tokens.reset(); });
  std::shared_ptr<const TokenGrammar> grammar;
  try {
    grammar = TokenGrammar::from_schema(schema, tokens(), {.max_depth = 4, .closed_objects = size % 2 == 1});
  } catch (const Error& e) {
    if (e.code() == ErrorCode::internal) __builtin_trap();
    return 0;
  }
  RandomSequence draws(size * 31 + (size > 0 ? data[size / 2] : 0), RandomStream::fuzz);
  for (int walk = 0; walk < 2; ++walk) {
    GrammarMatcher matcher(grammar);
    std::string text;
    const auto take = [&](std::int32_t token) {
      if (!matcher.accept(token)) __builtin_trap();
      if (!tokens()->is_end(token)) text += tokens()->bytes(token);
    };
    for (std::uint32_t step = draws.below(40); step > 0 && !matcher.ended(); --step) {
      const auto list = allowed(matcher);
      if (list.empty()) __builtin_trap();
      const auto other = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(tokens()->size())));
      GrammarMatcher copy(matcher);
      if (copy.accept(other) != std::binary_search(list.begin(), list.end(), other)) __builtin_trap();
      take(list[draws.below(static_cast<std::uint32_t>(list.size()))]);
    }
    // Home by the shortest way: each step must bring it nearer.
    const bool counted = counts(schema);
    for (int step = 0; !matcher.ended() && step < 2000; ++step) {
      if (matcher.complete()) {
        take(tokens()->end_tokens()[0]);
        break;
      }
      const std::int64_t before = matcher.shortest_end();
      std::int64_t least = INT64_MAX;
      std::int32_t best = -1;
      const auto list = allowed(matcher);
      if (list.empty()) __builtin_trap();
      for (const std::int32_t token : list) {
        if (token >= 256) break;
        GrammarMatcher copy(matcher);
        if (!copy.accept(token)) __builtin_trap();
        if (const std::int64_t bytes = copy.shortest_end(); bytes < least) least = bytes, best = token;
      }
      if (best < 0 || (!counted && least >= before)) __builtin_trap();
      take(best);
    }
    if (!matcher.ended() && !counted) __builtin_trap();
    if (matcher.ended() && !ordered_json::accept(text)) __builtin_trap();
  }
  return 0;
}
